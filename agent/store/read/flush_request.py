"""Requests that the agent of a store writes the counts that are only in its memory."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.store.layout import WRITTEN, socket_path

ANSWER_SECONDS_MAX = 5.0
"""How long a reader waits for a commit of the agent; then it shows what the disk has."""
ANSWER_BYTES_MAX = 256 << 10


def request_counts(folder: Path) -> Mapping[str, Any] | None:
    """Return the counts that an agent never writes, once it has written the others; None where none answers."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS_MAX)
            connection.connect(socket_path(descriptor))
            with connection.makefile("rb") as answer:
                written = answer.read(ANSWER_BYTES_MAX)
        return json.loads(written[len(WRITTEN) :] or b"{}") if written else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
