"""The job's stream: from the topic to batches, their commits and their receipts."""
