"""The UDP socket of the CoAP server, for IPv6 and IPv4."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import NamedTuple, Self, cast

from agent.coap.counters import Counters
from agent.coap.endpoint import Address, Endpoint, endpoint_of
from agent.coap.errors import CoapBindError

RECEIVE_BUFFER_BYTES = 4 << 20
"""Holds a burst of some thousand requests; the default drops one of 256. The kernel may grant less (rmem_max)."""
DATAGRAM_BYTES_MAX = 65_535
OPTIONS_BYTES_MAX = 1_024
"""Header, token and options beside the largest body."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(20)
_TRUNCATED = int(socket.MSG_TRUNC)
"""An int: the enum's own `&` takes longer than reading the datagram."""


class Received(NamedTuple):
    """One datagram."""

    datagram: bytes
    endpoint: Endpoint
    truncated: bool


class UdpSocket:
    """A bound, non-blocking socket that reports the local address of each datagram, and replies from it.

    Without SO_REUSEPORT, with which a second instance would silently receive half of the sensors' datagrams. Without
    IP_RECVERR, with which an ICMP error of one sensor makes the next send to any address fail.
    """

    def __init__(self, bind: str, body_bytes_max: int, counters: Counters) -> None:
        self._bind = bind
        self._size = min(body_bytes_max + OPTIONS_BYTES_MAX, DATAGRAM_BYTES_MAX)
        self._counters = counters

    def __enter__(self) -> Self:
        address = _resolve(self._bind)
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        try:
            self._configure(address)
        except OSError as error:
            self._socket.close()
            raise CoapBindError(f"coap.bind: cannot listen on {self._bind}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _configure(self, address: Address) -> None:
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.setblocking(False)
        self._socket.bind(address)

    @property
    def descriptor(self) -> int:
        """The file descriptor, for the loop."""
        return self._socket.fileno()

    @property
    def address(self) -> Address:
        """The address that the socket is bound to."""
        return cast(Address, self._socket.getsockname())

    @property
    def receive_buffer_bytes(self) -> int:
        """The size that the kernel granted (it doubles the requested size for its own overhead)."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def receive(self) -> Received | None:
        """Return the next datagram, None where there is none."""
        try:
            datagram, ancillary, flags, address = self._socket.recvmsg(self._size, _ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            self._counters.receive_failed += 1
            return None
        packet_info = ancillary[0][2] if ancillary else b""
        return Received(datagram, endpoint_of(address, packet_info), flags & _TRUNCATED != 0)

    def send(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Send one datagram; one that the kernel refuses is counted, and otherwise treated as lost."""
        try:
            self._socket.sendmsg((datagram,), endpoint.ancillary, 0, endpoint.address)
        except OSError:
            self._counters.send_failed += 1


def _resolve(bind: str) -> Address:
    """Return the address of `[address]:port` or `address:port`; an IPv4 address becomes a mapped one."""
    host, _, port = bind.rpartition(":")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV | socket.AI_V4MAPPED
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, socket.AF_INET6, socket.SOCK_DGRAM, flags=flags)
    except socket.gaierror as error:
        raise CoapBindError(f"coap.bind: {bind!r} is not [address]:port") from error
    return cast(Address, found[0][4])
