"""The store: what the gateway has promised to keep."""
