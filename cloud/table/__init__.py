"""The table: rows and what decides whether they are new."""
