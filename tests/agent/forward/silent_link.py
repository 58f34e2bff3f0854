"""A TCP link that can be silenced: it then forwards nothing, without FIN or RST."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.agent.forward.tcp_link import TcpLink

_PIECE_BYTES = 65_536


class SilentLink(TcpLink):
    """Forward connections to one port of this machine."""

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._silent = threading.Event()
        self.dropped = 0
        """Pieces that were dropped."""

    def fall_silent(self) -> None:
        """Drop everything from now on; connections stay open, and new ones are accepted."""
        self._silent.set()

    def speak_again(self) -> None:
        """Forward new connections again; earlier ones stay silent, as behind a router that has lost its state."""
        self._silent = threading.Event()

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, sink, self._silent), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if silent.is_set():
                    self.dropped += 1
                else:
                    sink.sendall(piece)
            if not silent.is_set():
                sink.shutdown(socket.SHUT_WR)
