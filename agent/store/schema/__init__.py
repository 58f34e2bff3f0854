"""The SQLite database: how it is opened, its tables, its migrations."""
