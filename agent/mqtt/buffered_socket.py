"""A connection's socket that reads ahead, separates messages from other packets, and gathers sends.

paho reads each packet in three or four pieces and sends each PUBACK by itself. Each of those would be a system call,
which also releases the interpreter to the store's thread.
"""

import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from agent.mqtt.packets import Item, Message, Packets

READ_BYTES: Final = 16_384
"""Bytes read at once; the broker sends those that were not processed again, on another connection."""
SEND_BYTES_MAX: Final = 65_536
"""Bytes gathered at most."""
_PINGRESP: Final = b"\xd0\x00"


class BufferedSocket:
    """Replaces paho's non-blocking socket; all but receiving and sending is the socket's own.

    paho receives all packets but messages; `message` returns the messages, in their order among the packets.
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
        """Return at most `count` of the next bytes before the next message.

        Raise BlockingIOError, or TLS's own error, where there are none, and MqttError where they are no packets.
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
        """Return the next message; None where another packet precedes it, or there is none."""
        if self._at == len(self._ahead) and self._items and isinstance(self._items[0], Message):
            return self._items.popleft()  # type: ignore[return-value]  # a Message: see above
        return None

    def pending(self) -> bool:
        """Whether received bytes are buffered here or in TLS."""
        buffered = self._at < len(self._ahead) or bool(self._items)
        return buffered or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0)

    def _fill(self) -> bool:
        """Read once; return False at the end of the connection.

        A part of a large packet counts as a PINGRESP, since the real one may be queued behind it.
        """
        data = self._sock.recv(READ_BYTES)
        if data:
            self._items.extend(self._packets.feed(data) or (_PINGRESP,))
        return bool(data)

    def send(self, data: bytes | bytearray) -> int:
        """Send, after the buffered bytes; raise BlockingIOError where the socket is not ready."""
        if self._gathering and len(self._unsent) < SEND_BYTES_MAX:
            self._unsent += data
            return len(data)
        if not self.flush():
            raise BlockingIOError
        return self._sock.send(data)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Buffer the data that is sent within the block; `flush` sends it."""
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False

    def flush(self) -> bool:
        """Send the buffered bytes; return whether all are sent. Raise OSError where the connection is broken."""
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            del self._unsent[:sent]
        return True

    def close(self) -> None:
        """Close; the buffered bytes are sent if that is possible at once."""
        with suppress(OSError):
            self.flush()
        self._sock.close()
