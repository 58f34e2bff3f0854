"""A connection's socket that reads ahead, and sends together what is sent in one go.

paho reads each packet in three or four pieces and sends each PUBACK by itself. Every one of those would be a call of
the system, which also lets the store's thread have the interpreter.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

READ_BYTES = 16_384
"""Read at once; what is read ahead is in no packet of ours yet, and the broker sends it again on another connection."""
SEND_BYTES_MAX = 65_536
"""Gathered at most."""


class BufferedSocket:
    """Stands where paho expects a socket that does not block; all but receiving and sending is the socket's own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ahead = b""
        self._at = 0
        self._unsent = bytearray()
        self._gathering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, count: int) -> bytes:
        """Give at most so many of the next bytes; BlockingIOError, or TLS's own error, where there are none yet."""
        if self._at == len(self._ahead):
            self._ahead, self._at = b"", 0
            self._ahead = self._sock.recv(READ_BYTES)
        piece = self._ahead[self._at : self._at + count]
        self._at += len(piece)
        return piece

    def pending(self) -> int:
        """Count the bytes that can be received though the kernel has them no longer."""
        own = len(self._ahead) - self._at
        return own + self._sock.pending() if isinstance(self._sock, ssl.SSLSocket) else own

    def send(self, data: bytes | bytearray) -> int:
        """Send, after what is not sent yet; BlockingIOError where that must wait."""
        if self._gathering and len(self._unsent) < SEND_BYTES_MAX:
            self._unsent += data
            return len(data)
        if not self.flush():
            raise BlockingIOError
        return self._sock.send(data)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Only gather what is sent meanwhile; `flush` sends it."""
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False

    def flush(self) -> bool:
        """Send what was gathered; tell whether nothing is left. OSError where the connection is broken."""
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            del self._unsent[:sent]
        return True

    def close(self) -> None:
        """Close; what was gathered is sent if it can be at once."""
        with suppress(OSError):
            self.flush()
        self._sock.close()
