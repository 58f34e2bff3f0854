"""Requests that the agent of a store writes the counts that are only in its memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from agent.store.layout import socket_path

ANSWER_SECONDS_MAX = 5.0
"""How long a reader waits for a commit of the agent; then it shows what the disk has."""


def request_flush(folder: Path) -> bool:
    """Return whether an agent has written its counts, so that the disk has all of them."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS_MAX)
            connection.connect(socket_path(descriptor))
            return connection.recv(1) != b""
    except OSError:
        return False
    finally:
        os.close(descriptor)
