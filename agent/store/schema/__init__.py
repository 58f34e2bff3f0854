"""The SQLite file: how it is opened, its tables, its migrations."""
