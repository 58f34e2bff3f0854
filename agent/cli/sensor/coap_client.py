"""Sends one confirmable CoAP request as a sensor does, and resends it until it is answered (RFC 7252 section 4.2)."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from agent.coap import message
from agent.coap.errors import CoapError
from agent.coap.message import Option
from agent.coap.tuning import Tuning

PORT = 5683
PATH = b"events"
OSCORE, URI_PATH, CONTENT_FORMAT, MAX_AGE = 9, 11, 12, 14
TOKEN_BYTES = 4
DATAGRAM_BYTES_MAX = 65_507
"""The largest datagram: UDP's 65,535 bytes without the headers of IPv4 and UDP."""


class TargetError(ValueError):
    """The text is not the address of a gateway."""


class DatagramSizeError(CoapError):
    """No datagram carries the request."""


class UntrustedResponseError(Exception):
    """A response under OSCORE is not protected, or not by the gateway that has the credentials."""


@dataclass(frozen=True, slots=True)
class CoapReply:
    """The gateway's response."""

    code: int
    payload: bytes
    max_age: int | None
    """Seconds after which to try again, where the response names them."""
    oscore: bytes | None = None
    """The OSCORE option (RFC 8613 section 2); None where the response is not protected."""

    @property
    def code_text(self) -> str:
        """The code in dotted form, such as 2.04."""
        return f"{self.code >> 5}.{self.code & 31:02d}"


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a gateway."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"coap://[{self.host}]:{self.port}" if ":" in self.host else f"coap://{self.host}:{self.port}"


def read_target(text: str) -> Target:
    """Read HOST, HOST:PORT, [ADDRESS]:PORT or a coap:// URI; raise TargetError."""
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme != "coap":
        raise TargetError(f"{text!r}: expected HOST[:PORT]")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # an IPv6 address alone
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise TargetError(f"{text!r}: expected HOST[:PORT]")
    return Target(host, port or PORT)


def waits(retransmits: int, random: Random) -> Iterator[float]:
    """Yield the seconds to wait for an answer after each transmission: each twice the one before."""
    tuning = Tuning()
    seconds = tuning.ack_timeout_seconds * random.uniform(1, tuning.ack_random_factor)
    for number in range(retransmits + 1):
        yield seconds * 2**number


def check_size(size_bytes: int) -> None:
    """Raise DatagramSizeError where no datagram carries so many bytes."""
    if size_bytes > DATAGRAM_BYTES_MAX:
        raise DatagramSizeError(
            f"the request has {size_bytes:,} bytes, more than a UDP datagram carries ({DATAGRAM_BYTES_MAX:,}); "
            "send it in parts, or by --http if http.max_body_bytes of the gateway allows it"
        )


def plain_request(payload: bytes, content_format: int) -> Request:
    """Return a request that is not protected."""
    return Request((Option(URI_PATH, PATH), Option(CONTENT_FORMAT, message.uint(content_format))), payload)


class Request:
    """One POST, with a Message ID and a Token of its own."""

    def __init__(self, options: tuple[Option, ...], payload: bytes) -> None:
        self._message_id = secrets.token_bytes(2)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        head = bytes((message.VERSION_1 | message.CONFIRMABLE | TOKEN_BYTES, message.POST))
        head += self._message_id + self._token
        self.datagram = message.join(head, message.write_options(options), payload)
        check_size(len(self.datagram))
        self.transmissions = 0
        self.received = False
        """Whether the gateway has acknowledged the message, and its response is to follow."""

    def exchange(self, target: Target, seconds: Iterator[float], report: Callable[[str], None]) -> CoapReply | None:
        """Send until there is a response; return None where there is none. `report` is called for each resend."""
        with _connect(target) as sock:
            trouble = "no answer"
            for wait in seconds:
                if self.transmissions and not self.received:
                    report(f"{trouble}: sending again")
                if not self.received:
                    self.transmissions += 1
                    trouble = _send(sock, self.datagram) or trouble
                deadline = time.monotonic() + wait
                while (left := deadline - time.monotonic()) > 0:
                    sock.settimeout(left)
                    try:
                        reply = self._read(sock)
                    except TimeoutError:
                        break
                    except OSError as error:  # of an earlier datagram: no program listens there at present
                        trouble = error.strerror or str(error)
                        continue
                    if reply is not None:
                        return reply
        return None

    def _read(self, sock: socket.socket) -> CoapReply | None:
        """Receive one datagram; return the response where it is ours."""
        datagram = sock.recv(DATAGRAM_BYTES_MAX)
        if len(datagram) < message.HEADER_BYTES or datagram[0] >> 6 != message.VERSION_1 >> 6:
            return None
        try:
            head, options, payload = message.split(datagram)
        except message.MessageFormatError:
            return None
        kind, ours = message.message_type(datagram), datagram[2:4] == self._message_id
        if kind == message.RESET and ours:
            return CoapReply(message.RESET, b"the gateway has reset the exchange", None)
        if kind == message.ACKNOWLEDGEMENT and ours and datagram[1] == message.EMPTY:
            self.received = True
            return None
        if head[message.HEADER_BYTES :] != self._token or datagram[1] < 0x40:
            return None
        if kind == message.CONFIRMABLE:
            _send(sock, message.empty(message.ACKNOWLEDGEMENT, datagram[2:4]))
        values = dict(message.read_options(options))
        max_age = int.from_bytes(values[MAX_AGE], "big") if MAX_AGE in values else None
        return CoapReply(datagram[1], payload, max_age, values.get(OSCORE))


def _connect(target: Target) -> socket.socket:
    """Return a socket for the first address of a host; raise OSError where it has none."""
    family, kind, protocol, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def _send(sock: socket.socket, datagram: bytes) -> str:
    """Send a datagram; return why it could not be sent, empty where it was."""
    try:
        sock.send(datagram)
    except OSError as error:  # an ICMP error of the datagram before, or no route: both may pass
        return error.strerror or str(error)
    return ""
