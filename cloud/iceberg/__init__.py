"""Iceberg tables in a catalog."""
