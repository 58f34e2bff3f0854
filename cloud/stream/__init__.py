"""The job's stream: from the topic to one batch after the other."""
