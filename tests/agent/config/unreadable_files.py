"""Files of every kind on which open() or read() fails or blocks, and a reader with a deadline."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

SECONDS_MAX = 30


def fifo(file: Path) -> None:
    os.mkfifo(file, 0o600)


def socket_file(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))


def huge(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    file.chmod(0o600)


def not_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    file.chmod(0o600)


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "FIFO": (fifo, "not a regular file"),
    "socket": (socket_file, "No such device or address"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "not a regular file"),
    "directory": (lambda file: file.mkdir(), "not a regular file"),
    "huge": (huge, "larger than 1048576 bytes"),
    "missing": (lambda _: None, "No such file"),
    "link to nothing": (lambda file: file.symlink_to("/nowhere/at/all"), "No such file"),
    "link to itself": (lambda file: file.symlink_to(file), "Too many levels of symbolic links"),
    "not UTF-8": (not_utf8, "codec can't decode"),
}


def outcome(read: Callable[[Path], object], path: Path) -> object:
    """Return the reader's result or exception."""
    box: list[object] = []

    def run() -> None:
        try:
            box.append(read(path))
        except Exception as error:  # noqa: BLE001  # whatever it is: the test judges it
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert box, f"not within {SECONDS_MAX} s: the reader waits"
    return box[0]
