"""The form of stored events."""
