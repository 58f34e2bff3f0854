"""A connection's socket that reads ahead, keeps messages apart, and sends together what is sent in one go.

paho reads each packet in three or four pieces and sends each PUBACK by itself. Every one of those would be a call of
the system, which also lets the store's thread have the interpreter.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agent.mqtt.packets import Item, Message, Packets

READ_BYTES = 16_384
"""Read at once; what is read ahead is in no packet of ours yet, and the broker sends it again on another connection."""
SEND_BYTES_MAX = 65_536
"""Gathered at most."""
_PINGRESP = b"\xd0\x00"


class BufferedSocket:
    """Stands where paho expects a socket that does not block; all but receiving and sending is the socket's own.

    paho receives the packets that are no messages; `message` gives those, in their place between the others.
    """

    def __init__(self, sock: socket.socket, packets: Packets) -> None:
        self._sock = sock
        self._packets = packets
        self._items: deque[Item] = deque()
        self._ahead = b""
        self._at = 0
        self._unsent = bytearray()
        self._gathering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, count: int) -> bytes:
        """Return at most so many of the next bytes before the next message.

        Raises BlockingIOError, or TLS's own error, where there are none, and MqttError where they are no packets.
        """
        if self._at == len(self._ahead):
            if not self._items and not self._fill():
                return b""
            if not self._items or isinstance(self._items[0], Message):
                raise BlockingIOError
            self._ahead, self._at = self._items.popleft(), 0  # type: ignore[assignment]  # no Message: see above
        piece = self._ahead[self._at : self._at + count]
        self._at += len(piece)
        return piece

    def message(self) -> Message | None:
        """Return the next message; None where something else comes before it, or nothing is there."""
        if self._at == len(self._ahead) and self._items and isinstance(self._items[0], Message):
            return self._items.popleft()  # type: ignore[return-value]  # a Message: see above
        return None

    def pending(self) -> bool:
        """Whether something can be received though the kernel has it no longer."""
        held = self._at < len(self._ahead) or bool(self._items)
        return held or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0)

    def _fill(self) -> bool:
        """Read once; False at the end of the connection.

        The answer to paho's ping waits behind a large packet, whose bytes prove as well that the broker is there.
        """
        data = self._sock.recv(READ_BYTES)
        if data:
            self._items.extend(self._packets.feed(data) or (_PINGRESP,))
        return bool(data)

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
