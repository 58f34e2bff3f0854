"""The store's files: their names, and the sizes of their parts."""

from __future__ import annotations

from pathlib import Path

from agent.config.lanes import DEFAULT_LANE

FILE_NAME = "events.db"
PAGE_BYTES = 4096
LOG_HEADER_BYTES = 32
LOG_FRAME_BYTES = 24 + PAGE_BYTES
"""A page in the write-ahead log, with its head."""
LOG_BYTES_KEPT = 4 << 20
"""The log is written back once it has grown so far, and keeps so much of its length; a single commit may pass it."""
FLUSH_SOCKET_NAME = "flush.sock"


LANES_FOLDER = "lanes"
"""The folder in the state folder with a store for each lane beside the default one, whose store is beside it."""


def lane_folders(state_folder: Path) -> dict[str, Path]:
    """Return the folders of the lanes' stores by the lanes' names, without that of the default lane."""
    folder = state_folder / LANES_FOLDER
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {lane.name: lane for lane in found if (lane / FILE_NAME).exists()}


def store_folders(state_folder: Path) -> dict[str, Path]:
    """Return the folders of all stores by the names of their lanes, the default lane first."""
    return {DEFAULT_LANE: state_folder, **lane_folders(state_folder)}


def socket_path(folder_descriptor: int) -> str:
    """Return a path of the socket in an open folder that fits into the 108 bytes that Linux allows."""
    return f"/proc/self/fd/{folder_descriptor}/{FLUSH_SOCKET_NAME}"
