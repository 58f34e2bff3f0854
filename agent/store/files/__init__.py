"""The files of the store below SQLite: lock, mark of use, write-ahead log, pages, replacement."""
