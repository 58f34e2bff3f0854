"""The store's files: their name, and the sizes of their parts."""

FILE_NAME = "events.db"
PAGE_BYTES = 4096
LOG_HEADER_BYTES = 32
LOG_FRAME_BYTES = 24 + PAGE_BYTES
"""A page in the write-ahead log, with its head."""
LOG_BYTES_KEPT = 4 << 20
"""The log is written back once it has grown so far, and keeps so much of its length; a single commit may pass it."""
