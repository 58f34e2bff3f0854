"""The sink that is a Delta table."""
