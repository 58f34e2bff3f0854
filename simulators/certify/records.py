"""The records of the contract that a gateway makes of events, without an agent."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from contract.event import Event, Label
from contract.fingerprint import fingerprint, needs_label
from contract.record import ClockTrust, Headers, SharedDay, encode_record, encode_tail


@dataclass(frozen=True, slots=True)
class Record:
    """A record for Kafka."""

    key: bytes
    value: bytes
    headers: Headers


@dataclass(slots=True)
class RecordSource:
    """Label events, as one epoch of one gateway."""

    name: str = "gw-1"
    epoch: str = "00000000000000a1"
    sequence: int = 0
    clock: ClockTrust = ClockTrust.TRUSTED
    horizon: int | None = None
    """After how many milliseconds no sensor resends."""
    sign: Callable[[bytes, bytes, bytes], bytes] | None = None
    """A `contract.mac.Signer`, where the gateway has a key."""

    def record(
        self, event: Event, received: int | None = None, label: Label | None = None, via: str = "coap"
    ) -> Record:
        """Accept an event now, or at another time, and return its record."""
        received = now() if received is None else received
        if label is None:
            self.sequence += 1
            label = Label(self.epoch, self.sequence)
        needs = needs_label(event)
        mark = fingerprint(event, label=label if needs else None)
        tail = encode_tail(event, received, via)
        bound = self._bound(event, received)
        return Record(*encode_record(mark, self.name, label, tail, self.clock, *bound, sign=self.sign))

    def _bound(self, event: Event, received: int) -> tuple[SharedDay, int | None]:
        if event.time is not None:
            return SharedDay.TIME, event.time
        if event.id is not None:
            return SharedDay.NONE, None if self.horizon is None else received - self.horizon
        return SharedDay.LABEL, received

    def records(self, events: Iterable[Event], received: int | None = None) -> list[Record]:
        """Accept several."""
        return [self.record(event, received) for event in events]


def without_header(record: Record, name: str) -> Record:
    """Return the record without one of its headers."""
    return replace(record, headers=[header for header in record.headers if header[0] != name])


def with_header(record: Record, name: str, value: bytes) -> Record:
    """Return the record with another value of one header."""
    return replace(record, headers=[(key, value if key == name else old) for key, old in record.headers])


def now() -> int:
    """Return the present time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
