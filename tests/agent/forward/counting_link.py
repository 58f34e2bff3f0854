"""A TCP link that counts the bytes that are sent over it, and can be cut for a while."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from tests.agent.forward.tcp_link import TcpLink

_PIECE_BYTES = 65_536


class CountingLink(TcpLink):
    """Forward connections to one port of this machine, and count what goes there."""

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._counting = threading.Lock()
        self.sent: list[tuple[float, int]] = []
        """When bytes were sent, by the monotonic clock, and how many."""
        self._dropping = threading.Event()

    def total(self) -> int:
        """Return how many bytes were sent so far."""
        with self._counting:
            return sum(size for _, size in self.sent)

    def sent_between(self, start: float, end: float) -> int:
        """Return how many bytes were sent between two moments of the monotonic clock."""
        with self._counting:
            return sum(size for moment, size in self.sent if start <= moment < end)

    def cut_off(self) -> None:
        """End all connections, and each new one at once, until `restore`."""
        self._dropping.set()
        self.cut()

    def restore(self) -> None:
        """Forward new connections again."""
        self._dropping.clear()

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        if self._dropping.is_set():
            self.cut()
            return
        threading.Thread(target=self._carry, args=(near, far, True), daemon=True).start()
        threading.Thread(target=self._carry, args=(far, near, False), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, is_sent: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if is_sent:
                    with self._counting:
                        self.sent.append((time.monotonic(), len(piece)))
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
