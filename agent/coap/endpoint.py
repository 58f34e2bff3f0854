"""The endpoints of a datagram, and the name of its sender."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final
from urllib.parse import quote

RETRANSMISSION_KEY_BYTES: Final = 16
ENDPOINTS_MAX: Final = 8_192
"""Endpoints kept in a cache; others are computed again."""

Address = tuple[str, int, int, int]
"""A socket address of AF_INET6: host, port, flow, zone."""
Ancillary = tuple[tuple[int, int, bytes], ...]

_KEYED_HASH: Final = blake2b(digest_size=RETRANSMISSION_KEY_BYTES, person=b"oncegate-coap-1")
"""Copied for each datagram, which takes half the time of creating it."""
_ADDRESS_BYTES: Final = 16
_SOCKADDR_IN6: Final = Struct("=H6s16sI")
"""RFC 3493 section 3.3 as Linux has it: family, port and flow in network order, address, scope."""
_PORT_FLOW: Final = Struct("!HI")
_ANY_INTERFACE: Final = bytes(4)
_MULTICAST: Final = 0xFF
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A sensor's address and port, together with the local address that it sent to."""

    address: Address
    ancillary: Ancillary
    """For sendmsg: the reply leaves from the address that received the request."""
    sender: str
    group: bool
    """Whether the datagram went to a multicast group."""
    key: bytes
    """The prefix of the input of `retransmission_key`."""
    peer: bytes
    """`address` and `ancillary` as the kernel's structures: sockaddr_in6, then in6_pktinfo where there is one."""

    def retransmission_key(self, datagram: bytes) -> bytes:
        """Return a digest of the endpoints and the datagram, which holds Message ID and Token."""
        digest = _KEYED_HASH.copy()
        digest.update(self.key + datagram)
        return digest.digest()


@lru_cache(maxsize=ENDPOINTS_MAX)
def endpoint_of(address: Address, packet_info: bytes) -> Endpoint:
    """Return the endpoint of recvmsg's address and its struct in6_pktinfo (RFC 3542), empty where there is none."""
    sender = f"coap://{_host(address)}"
    local = packet_info[:_ADDRESS_BYTES]
    ancillary: Ancillary = ()
    source = b""
    if packet_info:
        # Only a link-local address needs its interface; for others the routing table decides.
        source = local + (packet_info[_ADDRESS_BYTES:] if _link_local(local) else _ANY_INTERFACE)
        ancillary = ((socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, source),)
    key = f"{sender} {address[1]} {local.hex()} ".encode()
    return Endpoint(address, ancillary, sender, _is_group(local), key, _packed(address) + source)


@lru_cache(maxsize=ENDPOINTS_MAX)
def endpoint_of_peer(peer: bytes) -> Endpoint:
    """Return the endpoint of a received datagram's `peer`."""
    family, port_flow, host, zone = _SOCKADDR_IN6.unpack_from(peer)
    port, flow = _PORT_FLOW.unpack(port_flow)
    address = (socket.inet_ntop(family, host), port, flow, zone)
    return endpoint_of(address, peer[_SOCKADDR_IN6.size :])


def _packed(address: Address) -> bytes:
    host, port, flow, zone = address
    numeric = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return _SOCKADDR_IN6.pack(socket.AF_INET6, _PORT_FLOW.pack(port, flow), numeric, zone)


def _host(address: Address) -> str:
    """Return the host of a URI: IPv4 as such, a zone by its interface's name, percent-encoded (RFC 6874).

    The name, since an interface's number may change with a reboot.
    """
    host, zone = address[0], address[3]
    if host.startswith("::ffff:") and "." in host:
        return host.removeprefix("::ffff:")
    return f"[{host}%25{quote(_interface(zone), safe='')}]" if zone else f"[{host}]"


def _interface(zone: int) -> str:
    try:
        return socket.if_indextoname(zone)
    except OSError:
        return str(zone)


def _link_local(local: bytes) -> bool:
    return local[0] == 0xFE and local[1] & 0xC0 == 0x80


def _is_group(local: bytes) -> bool:
    if not local:
        return False
    return local[0] == _MULTICAST or (local.startswith(_MAPPED) and 224 <= local[12] <= 239)
