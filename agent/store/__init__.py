"""The store of the gateway's events."""
