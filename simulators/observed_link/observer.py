"""What sensors do on a link, checked against RFC 7252 and the rules of docs/sensors.md; without a socket or a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from simulators import wire

EXCHANGE_LIFETIME: Final = 247.0
"""Seconds for which a Message ID may not be used again (RFC 7252 section 4.8.2)."""
ACK_TIMEOUT: Final = 2.0
"""The first retransmission comes 2 to 3 s after the request, each further one after twice the time (section 4.2)."""
TOLERANCE: Final = 0.9
UNDERWAY_SECONDS: Final = 1.0
"""What a sensor sends so soon after an answer may have left before the answer arrived."""
CONTENTS_MAX: Final = 10_000
"""Contents that are kept of one sensor; what exceeds them is passed on and not checked."""
TEXT_MAX: Final = 120
_RETRIED: Final = (0x81, 0x88, 0x8D, 0x9D)
"""4.01 with Echo, 4.08, 4.13 and 4.29 ask for another request with the same content."""

MEANINGS: Final[Mapping[str, str]] = {
    "refused": "the gateway refuses the request for good; the text says why",
    "resent though refused": "what is answered with 4.xx stays wrong: record it, and go on with the next event",
    "resent too early": "5.03 and 4.29 state in Max-Age after how many seconds to try again",
    "resent though acknowledged": "delete an event once its 2.04 is there; each resend costs energy",
    "retransmitted too early": "the first retransmission comes 2 to 3 s after the request (RFC 7252, 4.2)",
    "retransmitted without backoff": "each retransmission waits twice as long as the one before (RFC 7252, 4.2)",
    "Message ID used again": "within 247 s a new request needs a new Message ID: a gateway may take it for the old one",
    "not confirmable": "a NON request is not retransmitted; what the link loses is lost",
    "no CoAP message": "the datagram cannot be parsed, and the gateway resets or ignores it",
    "not acknowledged": "sent, and neither acknowledged nor refused until the end: lost, if the sensor has deleted it",
    "more contents than events": "a resend differs from the first request (a new time or id?): each is another event",
    "fewer contents than events": "equal contents are one event: give each an id, or a time",
}


@dataclass(slots=True)
class _Exchange:
    """A request with its retransmissions."""

    datagram: bytes
    content: _Content
    moments: list[float]
    answered_at: float | None = None


@dataclass(slots=True)
class _Content:
    """What requests say apart from Message ID and Token: an event or a pack of them."""

    acked_at: float | None = None
    is_refused: bool = False
    not_before: float = 0.0


@dataclass(slots=True)
class SensorReport:
    """What was seen of one sensor."""

    requests: int = 0
    transmissions: int = 0
    contents: int = 0
    acked: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Sensor:
    exchanges: dict[tuple[str, int], _Exchange] = field(default_factory=dict)
    """By port and Message ID, the latest of each."""
    tokens: dict[tuple[str, bytes], _Exchange] = field(default_factory=dict)
    contents: dict[bytes, _Content] = field(default_factory=dict)
    report: SensorReport = field(default_factory=SensorReport)


class Observer:
    """Follows the POST requests of each sensor, by its address, and counts what it should not do.

    A block of an upload counts as a content of its own. Of requests under OSCORE each is another content, since they
    are encrypted: resends cannot be recognised.
    """

    def __init__(self) -> None:
        self.findings: Counter[tuple[str, str]] = Counter()
        """How often each finding was made, with a detail."""
        self._sensors: dict[str, _Sensor] = {}

    @property
    def sensors(self) -> Mapping[str, SensorReport]:
        """Return what was seen of each sensor."""
        return {name: sensor.report for name, sensor in self._sensors.items()}

    @property
    def settled(self) -> int:
        """The number of contents that were acknowledged or refused."""
        return sum(report.acked + report.refused for report in self.sensors.values())

    def sent(self, name: str, datagram: bytes, now: float) -> None:
        """Follow a datagram of a sensor, whether or not it arrives."""
        message = wire.parse(datagram)
        if message is None:
            self._find("no CoAP message", name)
            return
        if message.code != wire.POST:
            return
        host, _, port = name.rpartition(":")
        sensor = self._sensors.setdefault(host, _Sensor())
        sensor.report.transmissions += 1
        exchange = sensor.exchanges.get((port, message.message_id))
        if exchange is not None and now - exchange.moments[0] < EXCHANGE_LIFETIME:
            if exchange.datagram == datagram:
                self._retransmitted(name, exchange, now)
                return
            self._find("Message ID used again", name)
        self._requested(name, sensor, message, datagram, now)

    def delivered(self, name: str, datagram: bytes, now: float) -> None:
        """Follow a datagram that reaches a sensor."""
        message = wire.parse(datagram)
        host, _, port = name.rpartition(":")
        sensor = self._sensors.get(host)
        if message is None or sensor is None or message.code == wire.EMPTY:
            return
        by_id = sensor.exchanges.get((port, message.message_id)) if message.type == wire.ACK else None
        exchange = by_id or sensor.tokens.get((port, message.token))
        if exchange is None or exchange.answered_at is not None:
            return
        exchange.answered_at = now
        self._answered(name, sensor, exchange.content, message, now)

    def finish(self, events: int | None) -> None:
        """Count what has no outcome, and compare the contents with the number of events that the sensors had."""
        reports = self.sensors
        for name, report in reports.items():
            if missing := report.contents - report.acked - report.refused:
                self.findings["not acknowledged", name] += missing
        seen = sum(report.contents for report in reports.values())
        if events is not None and seen != events:
            kind = "more contents than events" if seen > events else "fewer contents than events"
            self._find(kind, f"{seen} of {events}")

    def _requested(self, name: str, sensor: _Sensor, message: wire.Message, datagram: bytes, now: float) -> None:
        key = datagram[4 + len(message.token) :]
        content = sensor.contents.get(key)
        if content is None:
            if len(sensor.contents) >= CONTENTS_MAX:
                return
            content = sensor.contents[key] = _Content()
            sensor.report.contents += 1
        elif content.acked_at is not None and now - content.acked_at > UNDERWAY_SECONDS:
            self._find("resent though acknowledged", name)
        elif content.is_refused:
            self._find("resent though refused", name)
        elif now < content.not_before:
            self._find("resent too early", f"{name}, by {content.not_before - now:.0f} s")
        if message.type == wire.NON:
            self._find("not confirmable", name)
        sensor.report.requests += 1
        exchange = _Exchange(datagram, content, [now])
        port = name.rpartition(":")[2]
        sensor.exchanges[port, message.message_id] = sensor.tokens[port, message.token] = exchange

    def _retransmitted(self, name: str, exchange: _Exchange, now: float) -> None:
        moments = exchange.moments
        if len(moments) == 1 and now - moments[0] < ACK_TIMEOUT * TOLERANCE:
            self._find("retransmitted too early", f"{name}, after {now - moments[0]:.1f} s")
        elif len(moments) > 1 and now - moments[-1] < 2 * (moments[-1] - moments[-2]) * TOLERANCE:
            self._find("retransmitted without backoff", name)
        if exchange.answered_at is not None and now - exchange.answered_at > UNDERWAY_SECONDS:
            self._find("resent though acknowledged", name)
        moments.append(now)

    def _answered(self, name: str, sensor: _Sensor, content: _Content, message: wire.Message, now: float) -> None:
        if message.code >> 5 == 2:
            sensor.report.acked += content.acked_at is None
            content.acked_at = now
        elif message.code >> 5 == 5 or message.code in _RETRIED:
            content.not_before = now + message.max_age_seconds * (message.code >> 5 == 5)
        elif not content.is_refused:
            content.is_refused = True
            sensor.report.refused += 1
            text = message.payload.decode(errors="replace")[:TEXT_MAX]
            self._find("refused", f"{message.code_text} {text}".rstrip())

    def _find(self, kind: str, detail: str) -> None:
        self.findings[kind, detail] += 1
