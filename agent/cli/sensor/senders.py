"""Sends one event in a request of its own, over CoAP or HTTP, and reports the outcome."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from aiocoap import Message  # type: ignore[import-untyped] # it carries no types

from agent.cli import api
from agent.cli.sensor.coap_client import Request, Target, UntrustedResponseError, check_size, post, waits

if TYPE_CHECKING:
    from agent.cli.sensor.protection import SensorContext

ACCEPTED, DUPLICATE, ACKNOWLEDGED = "accepted", "duplicate", "acknowledged"
REFUSED, UNANSWERED = "refused", "unanswered"
STORED = frozenset((ACCEPTED, DUPLICATE, ACKNOWLEDGED))
EVENTS_PATH = "/api/v1/events"
_CHANGED = "2.04"


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


class CoapSender:
    """Sends over CoAP, protected by OSCORE where a context is given.

    `own` is the HTTP interface of a gateway on this machine, which distinguishes new events from duplicates.
    """

    def __init__(self, target: Target, retransmits: int, own: api.Api | None, context: SensorContext | None) -> None:
        self._target = target
        self._retransmits = retransmits
        self._own = own
        self._context = context

    def send(self, body: Body) -> Result:
        """Send it in a new request.

        Raise OSError where the host has no address, and CoapError where it is too large, or without sequence number.
        """
        check_size(len(body.content))  # before it is protected, which has a limit, too
        before = self._latest()
        try:
            reply, transmissions = self._exchange(body)
        except UntrustedResponseError as error:
            return Result(REFUSED, str(error), fingerprint=body.fingerprint)
        sent = Result(UNANSWERED, transmissions=transmissions, fingerprint=body.fingerprint)
        if reply is None:
            return replace(sent, reason=f"{self._target} does not answer")
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
            if self._context is not None:
                message, reference = self._context.seal(message)
            request = Request(message)
            reply = request.exchange(self._target, waits(self._retransmits, SystemRandom()), _report)
            transmissions += request.transmissions
            if reply is not None and self._context is not None:
                reply, challenged = self._context.open(reply, reference)
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
        if self._own is None:
            return None
        try:
            feed: list[dict[str, Any]] = self._own.get(f"/api/v1/live?after={after}").document["feed"]
        except (api.ApiError, KeyError, TypeError):
            return None
        return feed


class HttpSender:
    """Sends over HTTP."""

    def __init__(self, target: api.Api, retransmits: int) -> None:
        self._target = target
        self._retransmits = retransmits

    def send(self, body: Body) -> Result:
        """Send it; raise ApiError."""
        trouble = ""
        for number, wait in enumerate(waits(self._retransmits, SystemRandom()), 1):
            deadline = time.monotonic() + wait
            try:
                return _http_result(self._target.post(EVENTS_PATH, body.content, body.media_type), number, body)
            except api.AgentUnreachableError as error:
                trouble = str(error)
            if number <= self._retransmits:
                time.sleep(max(0.0, deadline - time.monotonic()))
                _report(f"{trouble}: sending again")
        return Result(UNANSWERED, trouble, transmissions=self._retransmits + 1, fingerprint=body.fingerprint)


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
