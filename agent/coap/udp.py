"""The UDP socket of the CoAP server, for IPv6 and IPv4.

Datagrams are read and sent in batches: in one system call where the extension is built, else in one for each.
"""

import asyncio
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import quote

from agent.coap.counters import Counters
from agent.listening import BindError, Listen, listen_anew

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
    sender = f"coap://{uri_host(address)}"
    local = packet_info[:_ADDRESS_BYTES]
    ancillary: Ancillary = ()
    source = b""
    if packet_info:
        # Only a link-local address needs its interface; for others the routing table decides.
        is_link_local = local[0] == 0xFE and local[1] & 0xC0 == 0x80
        source = local + (packet_info[_ADDRESS_BYTES:] if is_link_local else _ANY_INTERFACE)
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


def uri_host(address: tuple[Any, ...]) -> str:
    """Return a socket address's host as in a URI: IPv4 as such, a zone by its interface's name (RFC 6874).

    The name, since an interface's number may change with a reboot.
    """
    host = str(address[0]).partition("%")[0]
    zone: int = address[3] if len(address) == 4 else 0
    mapped = host.removeprefix("::ffff:")
    if ":" not in mapped:
        return mapped
    return f"[{host}%25{quote(_interface(zone), safe='')}]" if zone else f"[{host}]"


def _interface(zone: int) -> str:
    try:
        return socket.if_indextoname(zone)
    except OSError:
        return str(zone)


def _is_group(local: bytes) -> bool:
    if not local:
        return False
    return local[0] == _MULTICAST or (local.startswith(_MAPPED) and 224 <= local[12] <= 239)


RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Holds a burst of some thousand requests; the default drops one of 256. The kernel may grant less (rmem_max)."""
DATAGRAM_BYTES_MAX: Final = 65_535
OPTIONS_BYTES_MAX: Final = 1_024
"""Header, token and options beside the largest body."""
DATAGRAMS_PER_READ: Final = 64
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(20)
_WITHOUT_IPV6: Final = (
    "; CoAP needs a kernel with IPv6, for IPv4, too: boot with ipv6.disable_ipv6=1, not ipv6.disable=1"
)
_TRUNCATED: Final = int(socket.MSG_TRUNC)
"""An int: the enum's own `&` takes longer than reading the datagram."""


Received = tuple[bytes, Endpoint, bool]
"""A datagram, where it came from, and whether it was truncated."""

Outgoing = tuple[bytes, Endpoint]


class BatchedDatagrams:
    """Reads and sends datagrams in one system call for many (decision 68).

    `receive` returns those that wait, up to a number, or raises OSError; `send` returns how many the kernel refused.
    """

    def __init__(self, udp: socket.socket, datagram_bytes_max: int, count_max: int) -> None:
        from agent.coap import _datagrams  # an extension, which a pure installation does not have

        self._socket = udp
        self._receive = _datagrams.Receiver(datagram_bytes_max, count_max).receive
        self._send = _datagrams.send

    def receive(self) -> Sequence[Received]:
        return [
            (datagram, endpoint_of_peer(peer), truncated)
            for datagram, peer, truncated in self._receive(self._socket.fileno())
        ]

    def send(self, outgoing: Sequence[Outgoing]) -> int:
        return self._send(self._socket.fileno(), [(datagram, endpoint.peer) for datagram, endpoint in outgoing])


class SingleDatagrams:
    """The same in one system call for each datagram."""

    def __init__(self, udp: socket.socket, datagram_bytes_max: int, count_max: int) -> None:
        self._socket = udp
        self._datagram_bytes_max = datagram_bytes_max
        self._count_max = count_max

    def receive(self) -> Sequence[Received]:
        batch: list[Received] = []
        while len(batch) < self._count_max:
            try:
                datagram, ancillary, flags, sender = self._socket.recvmsg(self._datagram_bytes_max, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                if not batch:
                    raise
                break  # the next call reports it, if it lasts
            address: Address = sender
            packet_info = ancillary[0][2] if ancillary else b""
            batch.append((datagram, endpoint_of(address, packet_info), flags & _TRUNCATED != 0))
        return batch

    def send(self, outgoing: Sequence[Outgoing]) -> int:
        refused = 0
        for datagram, endpoint in outgoing:
            try:
                self._socket.sendmsg((datagram,), endpoint.ancillary, 0, endpoint.address)
            except OSError:
                refused += 1
        return refused


class UdpSocket:
    """A bound, non-blocking socket that reports the local address of each datagram, and replies from it.

    Without SO_REUSEPORT, with which a second instance would silently receive half of the sensors' datagrams. Without
    IP_RECVERR, with which an ICMP error of one sensor makes the next send to any address fail.
    """

    def __init__(self, bind: str, body_bytes_max: int, counters: Counters, listen: Listen = listen_anew) -> None:
        self._bind = bind
        self._listen = listen
        self._size = min(body_bytes_max + OPTIONS_BYTES_MAX, DATAGRAM_BYTES_MAX)
        self._counters = counters
        self._outgoing: list[Outgoing] = []

    def __enter__(self) -> Self:
        address = _resolve(self._bind)
        self._socket = self._listen(socket.SOCK_DGRAM, address, lambda: self._bound(address))
        _configure(self._socket)
        self._loop = asyncio.get_running_loop()
        form: type[BatchedDatagrams | SingleDatagrams]
        form = SingleDatagrams if find_spec("agent.coap._datagrams") is None else BatchedDatagrams
        self._datagrams = form(self._socket, self._size, DATAGRAMS_PER_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._socket.close()

    def _bound(self, address: Address) -> socket.socket:
        try:
            opened = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        except OSError as error:
            hint = _WITHOUT_IPV6 if error.errno == errno.EAFNOSUPPORT else ""
            raise BindError(f"coap.bind: cannot open a socket: {error.strerror}{hint}") from error
        try:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            _configure(opened)
            opened.bind(address)
        except OSError as error:
            opened.close()
            raise BindError(f"coap.bind: cannot listen on {self._bind}: {error.strerror}") from error
        return opened

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    @property
    def address(self) -> Address:
        return cast(Address, self._socket.getsockname())

    @property
    def receive_buffer_bytes(self) -> int:
        """The size that the kernel granted (it doubles the requested size for its own overhead)."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def receive(self) -> Sequence[Received]:
        """Return the datagrams that wait, at most DATAGRAMS_PER_READ; empty where none waits."""
        try:
            return self._datagrams.receive()
        except OSError:  # such as a port that an earlier answer did not reach: the next read continues
            return ()

    def send(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Send one datagram at the end of this turn of the loop, together with all others of the turn.

        One that the kernel refuses is counted, and otherwise treated as lost.
        """
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append((datagram, endpoint))

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._counters.send_failed += self._datagrams.send(outgoing)


def _configure(udp: socket.socket) -> None:
    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    udp.setblocking(False)


def _resolve(bind: str) -> Address:
    """Return the address of `[address]:port` or `address:port`; an IPv4 address becomes a mapped one."""
    host, _, port = bind.rpartition(":")
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV | socket.AI_V4MAPPED
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, socket.AF_INET6, socket.SOCK_DGRAM, flags=flags)
    except socket.gaierror as error:
        raise BindError(f"coap.bind: {bind!r} is not [address]:port") from error
    return cast(Address, found[0][4])
