"""Sends one confirmable CoAP request as a sensor does, and resends it until it is answered (RFC 7252 section 4.2)."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from aiocoap import ACK, CON, EMPTY, POST, RST, Message, error  # type: ignore[import-untyped] # it carries no types

from agent.coap.errors import CoapError
from agent.coap.tuning import Tuning

PORT = 5683
DATAGRAM_BYTES_MAX = 65_507
"""The largest datagram: UDP's 65,535 bytes without the headers of IPv4 and UDP."""


class TargetError(ValueError):
    """The text is not the address of a gateway."""


class DatagramSizeError(CoapError):
    """No datagram carries the request."""


class UntrustedResponseError(Exception):
    """A response under OSCORE is not protected, or not by the gateway that has the credentials."""


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


def post(payload: bytes, content_format: int) -> Message:
    """Return a message that posts an event."""
    return Message(code=POST, uri_path=("events",), content_format=content_format, payload=payload)


class Request:
    """One message, confirmable, with a Message ID and a Token of its own."""

    def __init__(self, message: Message) -> None:
        message.mtype, message.mid, message.token = CON, secrets.randbelow(1 << 16), secrets.token_bytes(4)
        self._message = message
        self.datagram: bytes = message.encode()
        check_size(len(self.datagram))
        self.transmissions = 0
        self.received = False
        """Whether the gateway has acknowledged the message, and its response is to follow."""

    def exchange(self, target: Target, seconds: Iterator[float], report: Callable[[str], None]) -> Message | None:
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

    def _read(self, sock: socket.socket) -> Message | None:
        """Receive one datagram; return the response where it is ours, or a Reset."""
        try:
            reply = Message.decode(sock.recv(DATAGRAM_BYTES_MAX))
        except (error.UnparsableMessage, ValueError):
            return None
        if reply.mid == self._message.mid and reply.mtype is RST:
            return reply
        if reply.mid == self._message.mid and reply.mtype is ACK and reply.code is EMPTY:
            self.received = True
        if reply.token != self._message.token or not reply.code.is_response():
            return None
        if reply.mtype is CON:
            _send(sock, Message(code=EMPTY, _mtype=ACK, _mid=reply.mid).encode())
        return reply


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
