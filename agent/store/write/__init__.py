"""Writing, on one thread."""
