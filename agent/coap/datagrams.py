"""Many datagrams in one system call: recvmmsg(2) and sendmmsg(2), which Python's socket module does not have.

Its own calls let go of the interpreter's lock, and get it back up to a switch interval later while another thread is
busy: with the forwarder at work, twice for each event. These keep it; they never wait, and take some microseconds for
each datagram.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

_LIBRARY: Final = ctypes.PyDLL(None, use_errno=True)
_NO_WAIT: Final = int(socket.MSG_DONTWAIT)
_TRUNCATED: Final = int(socket.MSG_TRUNC)
_HEADER: Final = Struct("@PIPNPNi0PI0P")
"""struct mmsghdr: name and its length, I/O vector and its length, control data and their length, flags; bytes moved."""
_VECTOR: Final = Struct("@PN")
"""struct iovec: base and length."""
NAME_BYTES: Final = 28
"""Of struct sockaddr_in6."""
CONTROL_BYTES: Final = socket.CMSG_SPACE(20)
"""Of a control message with a struct in6_pktinfo."""
SENT_BYTES_MAX: Final = 128 << 10
"""Of all datagrams in one call: at least one of the largest."""


class Taken(NamedTuple):
    """One datagram as the kernel gave it."""

    datagram: bytes
    name: bytes
    """Who sent it, a struct sockaddr_in6."""
    control: bytes
    """Control messages."""
    truncated: bool


class _Room:
    """Memory whose address the kernel is told; what is never used of it takes none."""

    def __init__(self, size: int) -> None:
        self.content = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.content))


class Receiver:
    """Takes datagrams of at most `size` bytes from a socket, up to `count` at a time."""

    def __init__(self, descriptor: int, size: int, count: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._count = count
        self._data, self._names = _Room(count * size), _Room(count * NAME_BYTES)
        self._controls, self._vectors = _Room(count * CONTROL_BYTES), _Room(count * _VECTOR.size)
        self._headers = _Room(count * _HEADER.size)
        for place in range(count):
            _VECTOR.pack_into(self._vectors.content, place * _VECTOR.size, self._data.address + place * size, size)
            _HEADER.pack_into(
                self._headers.content, place * _HEADER.size,
                self._names.address + place * NAME_BYTES, NAME_BYTES,
                self._vectors.address + place * _VECTOR.size, 1,
                self._controls.address + place * CONTROL_BYTES, CONTROL_BYTES, 0, 0,
            )  # fmt: skip
        self._unused = self._headers.content[:]
        """The headers as they have to be before each call, which writes lengths and flags into them."""

    def take(self) -> list[Taken]:
        """Take what is there, nothing where nothing is; raise OSError where the kernel says so."""
        headers = self._headers.content
        headers[:] = self._unused
        count = _LIBRARY.recvmmsg(self._descriptor, ctypes.c_void_p(self._headers.address), self._count, _NO_WAIT, None)
        if count < 0:
            _raise_but(BlockingIOError)
            return []
        return [self._at(place) for place in range(count)]

    def _at(self, place: int) -> Taken:
        header = _HEADER.unpack_from(self._headers.content, place * _HEADER.size)
        name, control, data = place * NAME_BYTES, place * CONTROL_BYTES, place * self._size
        return Taken(
            self._data.content[data : data + header[7]],
            self._names.content[name : name + NAME_BYTES],
            self._controls.content[control : control + header[5]],
            header[6] & _TRUNCATED != 0,
        )


class Sender:
    """Sends datagrams through a socket, up to `count` at a time."""

    def __init__(self, descriptor: int, count: int) -> None:
        self._descriptor = descriptor
        self._count = count
        self._data, self._names = _Room(SENT_BYTES_MAX), _Room(count * NAME_BYTES)
        self._controls, self._vectors = _Room(count * CONTROL_BYTES), _Room(count * _VECTOR.size)
        self._headers = _Room(count * _HEADER.size)

    def send(self, datagrams: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Send them in order, each with its name and control messages; count those that the kernel did not take."""
        failed, start = 0, 0
        while start < len(datagrams):
            count = self._prepare(datagrams[start : start + self._count])
            done = 0
            while done < count:
                address = ctypes.c_void_p(self._headers.address + done * _HEADER.size)
                sent = _LIBRARY.sendmmsg(self._descriptor, address, count - done, _NO_WAIT)
                if sent < 1:  # what the first of them met; the others have not been tried
                    failed += 1
                done += max(sent, 1)
            start += count
        return failed

    def _prepare(self, datagrams: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Lay out the first of these, as many as there is room for."""
        end = 0
        for place, (datagram, name, control) in enumerate(datagrams):
            start, end = end, end + len(datagram)
            if end > SENT_BYTES_MAX:
                return place
            self._data.content[start:end] = datagram
            name_at, control_at = place * NAME_BYTES, place * CONTROL_BYTES
            self._names.content[name_at : name_at + len(name)] = name
            self._controls.content[control_at : control_at + len(control)] = control
            _VECTOR.pack_into(self._vectors.content, place * _VECTOR.size, self._data.address + start, len(datagram))
            _HEADER.pack_into(
                self._headers.content, place * _HEADER.size,
                self._names.address + name_at, len(name),
                self._vectors.address + place * _VECTOR.size, 1,
                self._controls.address + control_at if control else 0, len(control), 0, 0,
            )  # fmt: skip
        return len(datagrams)


def _raise_but(allowed: type[OSError]) -> None:
    """Raise what the last call has failed with, unless it is this."""
    number = ctypes.get_errno()
    error = OSError(number, os.strerror(number))
    if not isinstance(error, allowed):
        raise error
