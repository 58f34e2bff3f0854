"""The gateway's own events, by which it declares epochs, gaps and corrections of its clock.

And which events were accepted while the clock was untrusted, and how far from the time since boot it was then.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from agent.store.port import Candidate, ClosedSection, LabelRange
from contract.event import Event, Label, Value, gateway_device
from contract.fields import VERSION
from contract.fingerprint import fingerprint
from contract.record import ClockTrust, SharedDay, encode_tail

STARTED = "gateway.started"
GAP = "gateway.gap"
CLOCK = "gateway.clock"
CHECKPOINT = "gateway.checkpoint"

CLOCK_STEP_MS: Final = 500
"""A change of the clock by more than this begins another range, so that a correction is right to within as much."""
CLOCK_RANGES_MAX: Final = 100
"""How many ranges are kept until the clock is trusted; events after further steps of the clock are not corrected."""


@dataclass(frozen=True, slots=True)
class GatewayCondition:
    """What the events that begin a section state about the gateway, for the views of a fleet."""

    version: str
    new_events: int
    """Events in the store that were not sent yet."""
    written_bytes: int
    """Bytes that were written to the disk since the store was created."""
    lane: str = ""
    """The lane whose events these are; empty for the default lane."""
    settings_hash: str = ""
    """As returned by `agent.config.origins`; empty where a store is opened without a whole configuration."""

    retention_seconds: int = 0
    """For how long an id is unique; 0 where it is not stated."""

    def entries(self) -> dict[str, Value]:
        counts = {"new_events": self.new_events, "written_bytes": self.written_bytes}
        optional = ("retention_seconds", "settings_hash", "lane")
        known = {name: value for name in optional if (value := getattr(self, name))}
        return {"version": self.version, "contract": VERSION, **counts, **known}


def started(
    gateway: str,
    epoch: str,
    previous: Label | None,
    received: int,
    clock: ClockTrust,
    closed: ClosedSection | None,
    condition: GatewayCondition,
) -> Candidate:
    """Return the event that begins an epoch and states where the previous one ended.

    `closed` is the previous epoch's last section; None where its digest is not known. The event's id is random and all
    its duplicates repeat one record, so that they share the day of its acceptance.
    """
    data: dict[str, Value] = {}
    if previous is not None:
        data = {"previous_epoch": previous.epoch, "previous_sequence": previous.sequence}
    if closed is not None:
        data |= {"previous_first": closed.first, "previous_digest": closed.digest.hex()}
    data |= condition.entries()
    return _candidate(Event(gateway_device(gateway), STARTED, epoch, data=data), received, clock)


def checkpoint(
    gateway: str, id_: str, closed: ClosedSection, received: int, clock: ClockTrust, condition: GatewayCondition
) -> Candidate:
    """Return the event that states the digest of a section of its own epoch, and begins the next section."""
    data: dict[str, Value] = {"first": closed.first, "last": closed.last, "digest": closed.digest.hex()}
    data |= condition.entries()
    return _candidate(Event(gateway_device(gateway), CHECKPOINT, id_, data=data), received, clock)


def gap(
    gateway: str,
    id_: str,
    reason: str,
    labels: Sequence[LabelRange],
    found_to: Label | None,
    received: int,
    clock: ClockTrust,
) -> Candidate:
    """Return the event that declares which events the gateway has given up, by their labels.

    `found_to` is the last event that was found, where it is unknown whether others followed.
    """
    count = sum(one.last - one.first + 1 for one in labels)
    data: dict[str, Value] = {"reason": reason, "count": count}
    data["labels"] = [[one.epoch, one.first, one.last] for one in labels]
    if found_to is not None:
        data |= {"found_to_epoch": found_to.epoch, "found_to_sequence": found_to.sequence}
    return _candidate(Event(gateway_device(gateway), GAP, id_, data=data), received, clock)


def clock_correction(
    gateway: str, id_: str, boot: str, labels: LabelRange, correction_ms: int, received: int
) -> Candidate:
    """Return the event that declares by how much the clock was behind when these labels were accepted.

    It applies to those events in the range whose clock was untrusted. `received` is by the trusted clock (decision 74).
    """
    data: dict[str, Value] = {**asdict(labels), "correction_ms": correction_ms}
    return _candidate(Event(gateway_device(gateway), CLOCK, id_, boot, data=data), received, ClockTrust.TRUSTED)


def _candidate(event: Event, received: int, clock: ClockTrust) -> Candidate:
    tail = encode_tail(event, received, "gateway")
    return Candidate(event, fingerprint(event), tail, received, clock, SharedDay.LABEL, received)


@dataclass(frozen=True, slots=True)
class UntrustedClock:
    """The undeclared ranges of one boot under an untrusted clock, by their beginnings."""

    boot: str = ""
    begun: tuple[tuple[int, int | None], ...] = ()
    """The first position of each range and its offset, the wall clock less the time since boot in milliseconds; None
    where it is not corrected."""
    declared: int = 0
    """How many events have declared ranges since the store was created."""

    def noted(self, boot: str, position: int, offset_ms: int) -> Self:
        """Return the ranges with one more event accepted under an untrusted clock, in the latest range or a new one."""
        begun = self.begun if boot == self.boot else ()
        if len(begun) > CLOCK_RANGES_MAX:
            return self
        if len(begun) == CLOCK_RANGES_MAX:
            return replace(self, begun=(*begun, (position, None)))
        if begun and abs(offset_ms - (begun[-1][1] or 0)) <= CLOCK_STEP_MS:
            return self
        return replace(self, boot=boot, begun=(*begun, (position, offset_ms)))

    def ranges(self, boot: str, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield first and last position and offset of this boot's ranges that can be corrected, up to a position."""
        if boot != self.boot:
            return
        ends = [first - 1 for first, _ in self.begun[1:]] + [last]
        for (first, offset_ms), end in zip(self.begun, ends, strict=True):
            if offset_ms is not None and first <= end:
                yield first, end, offset_ms

    def text(self) -> str:
        return json.dumps([self.boot, self.begun, self.declared])


def read_untrusted_clock(text: str | None) -> UntrustedClock:
    """Read the fact's text; None is that of a store without such events."""
    if text is None:
        return UntrustedClock()
    boot, begun, declared, *_ = json.loads(text)
    return UntrustedClock(boot, tuple((first, offset_ms) for first, offset_ms, *_ in begun), declared)
