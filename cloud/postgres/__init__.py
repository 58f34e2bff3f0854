"""The sink that is a PostgreSQL table."""
