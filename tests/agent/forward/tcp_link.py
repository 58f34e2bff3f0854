"""A TCP link to one port of this machine, whose connections are forwarded by threads."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class TcpLink(ABC):
    """Forward connections to one port of this machine; subclasses decide which bytes pass, and how."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    @abstractmethod
    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        """Begin to forward a connection, with threads of its own."""

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
