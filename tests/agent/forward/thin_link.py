"""A TCP link of few bytes per second, which all connections share, with the short queue of a modem."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from tests.agent.forward.tcp_link import TcpLink

_PIECE_BYTES = 256
_QUEUE_BYTES = 4_096


class ThinLink(TcpLink):
    """Forward connections to one port of this machine, what goes there at a rate; answers pass at once."""

    def __init__(self, port: int, target: int, bytes_per_second: int) -> None:
        super().__init__(port, target)
        self._rate = bytes_per_second
        self._line = threading.Lock()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)  # accepted sockets inherit it

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        threading.Thread(target=self._send, args=(near, far), daemon=True).start()
        threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _send(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while piece := near.recv(_PIECE_BYTES):
                with self._line:
                    time.sleep(len(piece) / self._rate)
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)

    @staticmethod
    def _answer(far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while piece := far.recv(65_536):
                near.sendall(piece)
            near.shutdown(socket.SHUT_WR)
