"""Reading beside the running service."""
