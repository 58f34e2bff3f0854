"""Sends one event in a request of its own, over CoAP or HTTP as a sensor does, and reports the outcome."""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiocoap import ACK, CON, EMPTY, POST, RST, Message, error  # type: ignore[import-untyped] # it carries no types

from agent.cli import api
from agent.coap.errors import CoapError
from agent.coap.tuning import Tuning

if TYPE_CHECKING:
    from agent.cli.sensor.protection import SensorContext

ACCEPTED, DUPLICATE, ACKNOWLEDGED = "accepted", "duplicate", "acknowledged"
REFUSED, UNANSWERED = "refused", "unanswered"
STORED = frozenset((ACCEPTED, DUPLICATE, ACKNOWLEDGED))
EVENTS_PATH = "/api/v1/events"
_CHANGED = "2.04"
PORT = 5683
DATAGRAM_BYTES_MAX = 65_507
"""The largest datagram: UDP's 65,535 bytes without the headers of IPv4 and UDP."""


@dataclass(frozen=True, slots=True)
class Body:
    """The event in one format."""

    content: bytes
    content_format: int
    media_type: str
    device: str
    fingerprint: str | None
    """None where only the gateway can compute it, or where the event is invalid."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one request."""

    outcome: str
    """accepted, duplicate, acknowledged (one of these two), refused, unanswered."""
    reason: str = ""
    code: str = ""
    transmissions: int = 1
    seconds: float = 0.0
    fingerprint: str | None = None

    @property
    def stored(self) -> bool:
        """Whether the event is on the gateway's disk."""
        return self.outcome in STORED


@dataclass(frozen=True, slots=True)
class CoapSender:
    """Sends over CoAP, protected by OSCORE where a context is given."""

    target: Target
    retransmits: int
    own: api.Api | None
    """The HTTP interface of a gateway on this machine, which distinguishes new events from duplicates."""
    context: SensorContext | None

    def send(self, body: Body) -> Result:
        """Send it in a new request.

        Raise OSError where the host has no address, and CoapError where it is too large, or without sequence number.
        """
        check_size(len(body.content))  # before it is protected, which has a limit, too
        before = self._latest()
        try:
            reply, transmissions = self._exchange(body)
        except UntrustedResponseError as untrusted:
            return Result(REFUSED, str(untrusted), fingerprint=body.fingerprint)
        sent = Result(UNANSWERED, transmissions=transmissions, fingerprint=body.fingerprint)
        if reply is None:
            return replace(sent, reason=f"{self.target} does not answer")
        code = reply.code.dotted
        if code == _CHANGED:
            outcome = ACKNOWLEDGED if before is None else self._outcome(before, body)
            return replace(sent, outcome=outcome, code=code)
        return replace(sent, outcome=REFUSED, code=code, reason=_coap_reason(reply))

    def _exchange(self, body: Body) -> tuple[Message | None, int]:
        """Return the response, None where there is none, and the number of transmissions.

        A protected request is sent once more, with the Echo value, where the gateway asks for it.
        """
        transmissions = 0
        for _ in range(2):
            message, reference, challenged = post(body.content, body.content_format), None, False
            if self.context is not None:
                message, reference = self.context.seal(message)
            request = Request(message)
            reply = request.exchange(self.target, waits(self.retransmits, SystemRandom()), _report)
            transmissions += request.transmissions
            if reply is not None and self.context is not None:
                reply, challenged = self.context.open(reply, reference)
            if not challenged:
                break
        return reply, transmissions

    def _latest(self) -> int | None:
        """Return the number of the latest outcome, None where the agent does not answer."""
        feed = self._feed(0)
        return None if feed is None else max((entry["number"] for entry in feed), default=0)

    def _outcome(self, before: int, body: Body) -> str:
        entries = [entry for entry in self._feed(before) or [] if entry["device"] == body.device]
        exact = [entry for entry in entries if entry["fingerprint"] == body.fingerprint]
        outcomes = [entry["outcome"] for entry in exact or entries if entry["outcome"] in STORED]
        return str(outcomes[-1]) if outcomes else ACKNOWLEDGED

    def _feed(self, after: int) -> list[dict[str, Any]] | None:
        if self.own is None:
            return None
        try:
            feed: list[dict[str, Any]] = self.own.get(f"/api/v1/live?after={after}").document["feed"]
        except (api.ApiError, KeyError, TypeError):
            return None
        return feed


@dataclass(frozen=True, slots=True)
class HttpSender:
    """Sends over HTTP."""

    target: api.Api
    retransmits: int

    def send(self, body: Body) -> Result:
        """Send it; raise ApiError."""
        trouble = ""
        for number, wait in enumerate(waits(self.retransmits, SystemRandom()), 1):
            deadline = time.monotonic() + wait
            try:
                return _http_result(self.target.post(EVENTS_PATH, body.content, body.media_type), number, body)
            except api.AgentUnreachableError as unreachable:
                trouble = str(unreachable)
            if number <= self.retransmits:
                time.sleep(max(0.0, deadline - time.monotonic()))
                _report(f"{trouble}: sending again")
        return Result(UNANSWERED, trouble, transmissions=self.retransmits + 1, fingerprint=body.fingerprint)


def _http_result(response: api.ApiResponse, transmissions: int, body: Body) -> Result:
    result = Result(REFUSED, code=str(response.code), transmissions=transmissions, fingerprint=body.fingerprint)
    if response.code != 200:
        wait = f"; send it again after {response.retry_after} s" if response.retry_after else ""
        return replace(result, reason=api.reason(response) + wait)
    document = response.document
    fingerprint = next(iter(document["fingerprints"]), body.fingerprint)
    return replace(result, outcome=ACCEPTED if document["accepted"] else DUPLICATE, fingerprint=fingerprint)


def _coap_reason(reply: Message) -> str:
    text = reply.payload.decode("utf-8", "replace") or _MEANINGS.get(reply.code.dotted, "no reason given")
    return f"{text}; send it again after {reply.opt.max_age} s" if reply.opt.max_age else text


_MEANINGS = {
    "0.00": "the gateway has reset the exchange",
    "4.01": "OSCORE is required: docs/oscore.md",
    "4.03": "the device is not allowed",
    "4.04": "no such path on this server",
}


def _report(text: str) -> None:
    print(f"oncegate: {text}", file=sys.stderr, flush=True)


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
    """Read HOST, HOST:PORT, [ADDRESS]:PORT or a coap:// URI; raise ValueError."""
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme != "coap":
        raise ValueError(f"{text!r}: expected HOST[:PORT]")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # an IPv6 address alone
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise ValueError(f"{text!r}: expected HOST[:PORT]")
    return Target(host, port or PORT)


def waits(retransmits: int, random: Random) -> Iterator[float]:
    """Yield the seconds to wait for an answer after each transmission: each twice the one before."""
    tuning = Tuning()
    seconds = tuning.ack_timeout_seconds * random.uniform(1, tuning.ack_random_factor)
    for number in range(retransmits + 1):
        yield seconds * 2**number


def check_size(size_bytes: int) -> None:
    """Raise CoapError where no datagram carries so many bytes."""
    if size_bytes > DATAGRAM_BYTES_MAX:
        raise CoapError(
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
        """Send until there is a response; return None where there is none. `report` is called for each resend.

        Raise OSError where the host has no address.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(address)
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
                    except OSError as refused:  # of an earlier datagram: no program listens there at present
                        trouble = refused.strerror or str(refused)
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


def _send(sock: socket.socket, datagram: bytes) -> str:
    """Send a datagram; return why it could not be sent, empty where it was."""
    try:
        sock.send(datagram)
    except OSError as refused:  # an ICMP error of the datagram before, or no route: both may pass
        return refused.strerror or str(refused)
    return ""
