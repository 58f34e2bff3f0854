"""The store's files, below SQLite: lock, mark of use, room on the disk, pages as they lie there."""
