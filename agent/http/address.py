"""Numeric addresses to listen on: `[address]:port` or `address:port`."""

import socket
from ipaddress import IPv6Address, ip_address
from typing import Any

from agent.listening import BindError, Listen, listen_anew

BACKLOG = 128
BUFFER_BYTES = 32_768
"""Requested of the kernel for each direction of a connection; it allocates twice as much. By default each buffer could
grow to some megabytes, which count against the service's memory."""


class HttpSettingsError(Exception):
    """The settings, or a file that they name, can never work: do not retry."""


def listen(bind: str, get: Listen = listen_anew) -> socket.socket:
    """Return the listening socket of the setting; raise HttpSettingsError, or BindError."""
    family, address = _parse(bind)

    def bound() -> socket.socket:
        # With the protocol's number, without which asyncio does not set TCP_NODELAY.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier agent linger
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            opened.bind(address)
            _configure(opened)
        except OSError as error:
            opened.close()
            raise BindError(f"http.bind: cannot listen on {bind}: {error.strerror}") from error
        return opened

    listener = get(socket.SOCK_STREAM, address, bound)
    _configure(listener)
    return listener


def _configure(listener: socket.socket) -> None:
    listener.setblocking(False)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        listener.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)  # connections inherit it
    listener.listen(BACKLOG)


def is_loopback(host: str) -> bool:
    """Whether a numeric address is of this machine alone, an IPv4 address mapped to IPv6 included.

    Raise ValueError where it is no address. Python before 3.13 does not look into mapped addresses.
    """
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def reaches_loopback_only(bind: str) -> bool:
    """Whether only this machine can reach the address of the setting; raise HttpSettingsError."""
    return is_loopback(_parse(bind)[1][0])


def _parse(bind: str) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    host, _, port = bind.rpartition(":")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise HttpSettingsError(f"http.bind: {bind!r} is not [address]:port") from error
    return found[0][0], found[0][4]
