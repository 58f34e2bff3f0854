"""Who gives way to whom: sensors wait for a commit, and a backlog can wait for both."""

from __future__ import annotations

import threading
from types import TracebackType


class RightOfWay:
    """Held by the writer while it decides and writes, not while it flushes.

    It comes back from SQLite a dozen times in a commit, and each time waits for the interpreter's lock until a busy
    forwarder has had its turn: together they took ten milliseconds for each commit, and at times two hundred.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # deciding may purge, in a transaction of its own

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def give(self) -> None:
        """Wait while another thread has it."""
        with self._lock:
            pass
