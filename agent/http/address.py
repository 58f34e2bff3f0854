"""Where to listen: `[address]:port` or `address:port`, as numbers."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from agent.http.errors import BindError, HttpSettingsError

BACKLOG = 128
BUFFER_BYTES = 32_768
"""Asked of the kernel for each direction of a connection; it takes twice as much. By itself it would let each of them
grow to some megabytes, which count against the service's memory."""
_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class Place:
    """A place to listen at."""

    bind: str
    family: socket.AddressFamily
    address: tuple[Any, ...]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self.address[0].partition("%")[0]).is_loopback

    def listen(self) -> socket.socket:
        """Open the listening socket; raise BindError."""
        # The protocol by its number: only then does asyncio send small answers at once (TCP_NODELAY).
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
            raise BindError(f"http.bind: cannot listen on {self.bind}: {error.strerror}") from error
        return listener


def place_of(bind: str) -> Place:
    """Read the setting; raise HttpSettingsError."""
    host, _, port = bind.rpartition(":")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise HttpSettingsError(f"http.bind: {bind!r} is not [address]:port") from error
    family, _, _, _, address = found[0]
    return Place(bind, family, address)


def written(address: tuple[Any, ...]) -> str:
    """Write a host as it stands in a URI: IPv4 as such, a zone by its interface's name (RFC 6874).

    The name, since it outlives a reboot, which an interface's number need not.
    """
    host = str(address[0]).partition("%")[0]
    zone = address[3] if len(address) == 4 else 0
    if host.startswith(_MAPPED) and "." in host:
        return host.removeprefix(_MAPPED)
    if ":" not in host:
        return host
    return f"[{host}%25{quote(socket.if_indextoname(zone), safe='')}]" if zone else f"[{host}]"
