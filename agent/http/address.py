"""Numeric addresses to listen on: `[address]:port` or `address:port`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any

from agent.http.errors import HttpBindError, HttpSettingsError

BACKLOG = 128
BUFFER_BYTES = 32_768
"""Requested of the kernel for each direction of a connection; it allocates twice as much. By default each buffer could
grow to some megabytes, which count against the service's memory."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on."""

    bind: str
    family: socket.AddressFamily
    address: tuple[Any, ...]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.address[0])

    def listen(self) -> socket.socket:
        """Open the listening socket; raise HttpBindError."""
        # With the protocol's number, without which asyncio does not set TCP_NODELAY.
        listener = socket.socket(self.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier agent linger
            if self.family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                listener.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)  # connections inherit it
            listener.bind(self.address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise HttpBindError(f"http.bind: cannot listen on {self.bind}: {error.strerror}") from error
        return listener


def is_loopback(host: str) -> bool:
    """Whether a numeric address is of this machine alone, an IPv4 address mapped to IPv6 included.

    Raise ValueError where it is no address. Python before 3.13 does not look into mapped addresses.
    """
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def parse_listen_address(bind: str) -> ListenAddress:
    """Return the address of the setting; raise HttpSettingsError."""
    host, _, port = bind.rpartition(":")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise HttpSettingsError(f"http.bind: {bind!r} is not [address]:port") from error
    family, _, _, _, address = found[0]
    return ListenAddress(bind, family, address)
