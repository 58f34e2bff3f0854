"""A minimal gateway: events as records of the contract, without an agent."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from contract.event import Event, Label
from contract.fingerprint import fingerprint, needs_label
from contract.record import STATEMENT, ClockTrust, Headers, Shared, encode_record, encode_tail
from tests.support.waiting import wait_for_count


@dataclass(frozen=True, slots=True)
class Record:
    """A record for Kafka."""

    key: bytes
    value: bytes
    headers: Headers


@dataclass(slots=True)
class Gateway:
    """Label events, as one epoch of one gateway."""

    name: str = "gw-1"
    epoch: str = "00000000000000a1"
    sequence: int = 0
    clock: ClockTrust = ClockTrust.TRUSTED
    horizon: int | None = None
    """After how many milliseconds no sensor resends."""

    def record(self, event: Event, received: int | None = None, label: Label | None = None) -> Record:
        """Accept an event now, or at another time, and return its record."""
        received = now() if received is None else received
        if label is None:
            self.sequence += 1
            label = Label(self.epoch, self.sequence)
        needs = needs_label(event)
        mark = fingerprint(event, label=label if needs else None)
        tail = encode_tail(event, received, "coap")
        return Record(*encode_record(mark, self.name, label, tail, self.clock, *self._bound(event, received)))

    def _bound(self, event: Event, received: int) -> tuple[Shared, int | None]:
        if event.time is not None:
            return Shared.TIME, event.time
        if event.id is not None:
            return Shared.NONE, None if self.horizon is None else received - self.horizon
        return Shared.LABEL, received

    def records(self, events: Iterable[Event], received: int | None = None) -> list[Record]:
        """Accept several."""
        return [self.record(event, received) for event in events]


def readings(count: int, device: str = "urn:dev:mac:0000000000000001", start: int = 0) -> list[Event]:
    """Return events with the present time, distinguished by their counter."""
    return [Event(device, id=start + n, time=now(), data={"t": 20.5 + n}) for n in range(count)]


def send(bootstrap_servers: str, topic: str, records: Iterable[Record], partition: int | None = None) -> None:
    """Produce, and wait until Kafka has all records."""
    # Idempotent: after a late acknowledgement a record would otherwise be sent, and counted, twice.
    options = {"partitioner": "murmur2_random", "linger.ms": 5, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **options})
    where = -1 if partition is None else partition
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        producer.produce(topic, record.value, record.key, where, headers=headers)
        producer.poll(0)
    wait_for_count(lambda: producer.flush(1), 0, "records that Kafka has not acknowledged")


def without_header(record: Record, name: str) -> Record:
    return replace(record, headers=[header for header in record.headers if header[0] != name])


def with_word(record: Record, place: int, word: str) -> Record:
    """Return the record with one word of the gateway's statement replaced."""
    words = dict(record.headers)[STATEMENT].decode().split(" ")
    words[place] = word
    return with_header(record, STATEMENT, " ".join(words).encode())


def with_header(record: Record, name: str, value: bytes) -> Record:
    return replace(record, headers=[(key, value if key == name else old) for key, old in record.headers])


def now() -> int:
    return time.time_ns() // 1_000_000
