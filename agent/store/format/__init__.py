"""The stored form of events."""
