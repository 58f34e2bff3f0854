"""TCP links to one port of this machine, whose connections are forwarded by threads."""

import socket
import threading
import time
from contextlib import suppress
from typing import Self

_PIECE_BYTES = 65_536
_THIN_PIECE_BYTES = 256
_QUEUE_BYTES = 4_096


class TcpLink:
    """Forward connections; subclasses decide which bytes pass, and how."""

    piece_bytes = _PIECE_BYTES
    """How many bytes are read at once of what goes to the port."""

    def __init__(self, port: int, target: int) -> None:
        self._address = ("127.0.0.1", port)
        self._target = ("127.0.0.1", target)
        self._server = socket.socket()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._server.bind(self._address)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are forwarded."""
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._sockets.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._sockets += (near, far)
            self._begin(near, far)

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        """Begin to forward a connection, with threads of its own."""
        threading.Thread(target=self._send, args=(near, far), daemon=True).start()
        threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _send(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while piece := near.recv(self.piece_bytes):
                self._pass(len(piece))
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)

    def _pass(self, count: int) -> None:
        """Note that so many bytes are about to go to the port."""

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while piece := far.recv(_PIECE_BYTES):
                near.sendall(piece)
            near.shutdown(socket.SHUT_WR)


class CountingLink(TcpLink):
    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._sent: list[tuple[float, int]] = []
        """When bytes were sent, by the monotonic clock, and how many."""

    def total(self) -> int:
        return sum(size for _, size in list(self._sent))

    def sent_between(self, start: float, end: float) -> int:
        """Return how many bytes were sent between two moments of the monotonic clock."""
        return sum(size for moment, size in list(self._sent) if start <= moment < end)

    def _pass(self, count: int) -> None:
        self._sent.append((time.monotonic(), count))


class ThinLink(TcpLink):
    """Carries few bytes per second to the port, which all connections share, with the short queue of a modem."""

    piece_bytes = _THIN_PIECE_BYTES

    def __init__(self, port: int, target: int, bytes_per_second: int) -> None:
        super().__init__(port, target)
        self._rate = bytes_per_second
        self._line = threading.Lock()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)  # accepted sockets inherit it

    def _pass(self, count: int) -> None:
        with self._line:
            time.sleep(count / self._rate)


class LateLink(TcpLink):
    """Carries each piece to the port late, as a link with a long round trip does."""

    def __init__(self, port: int, target: int, seconds: float) -> None:
        super().__init__(port, target)
        self._seconds = seconds

    def _pass(self, count: int) -> None:
        time.sleep(self._seconds)
