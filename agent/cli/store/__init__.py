"""Commands that read the event store, beside the running agent or without it."""
