"""The one thread that writes."""
