"""Fetch and install what the services need."""
