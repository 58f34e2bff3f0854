"""The store's files: their names, and the sizes of their parts."""

FILE_NAME = "events.db"
PAGE_BYTES = 4096
LOG_HEADER_BYTES = 32
LOG_FRAME_BYTES = 24 + PAGE_BYTES
"""A page in the write-ahead log, with its head."""
LOG_BYTES_KEPT = 4 << 20
"""The log is written back once it has grown so far, and keeps so much of its length; a single commit may pass it."""
FLUSH_SOCKET_NAME = "flush.sock"
WRITTEN = b"1"
"""How the answer on it begins once the counts are on disk; without it the connection is closed."""


def socket_path(folder_descriptor: int) -> str:
    """Return a path of the socket in an open folder that fits into the 108 bytes that Linux allows."""
    return f"/proc/self/fd/{folder_descriptor}/{FLUSH_SOCKET_NAME}"
