"""A PostgreSQL table as a sink."""
