"""Installation of what the services need."""
