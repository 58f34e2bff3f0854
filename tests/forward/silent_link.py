"""A TCP link that can fall silent: nothing passes any more, and nobody is told (no FIN, no RST)."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE_BYTES = 65_536


class SilentLink:
    """Carry connections to one port of this machine."""

    def __init__(self, port: int, target: int) -> None:
        self._address = ("127.0.0.1", port)
        self._target = ("127.0.0.1", target)
        self._server = socket.socket()
        self._silent = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.dropped = 0
        """Pieces that were swallowed."""

    def __enter__(self) -> Self:
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._server.bind(self._address)
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are carried."""
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._sockets.clear()

    def fall_silent(self) -> None:
        """Let nothing pass from now on; connections stay open, new ones too, and lead nowhere."""
        self._silent.set()

    def speak_again(self) -> None:
        """Carry new connections again; those from before stay dead, as behind a router that has forgotten them."""
        self._silent = threading.Event()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._sockets += (near, far)
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
