"""The batches in flight, and those acked whose topic is not yet confirmed."""

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Final, Protocol

from confluent_kafka import KafkaError

from agent.forward.errors import RenewalError, SessionError
from agent.forward.kafka.topic import LeaderEpochs
from agent.forward.modes.oversized import TOO_LARGE_CODES
from agent.forward.receipts.round import Acked
from agent.store.port import Batch, Offsets

ACKED_MAX: Final = 1_000
"""Batches that are acked and wait for the topic to be confirmed; a few hundred bytes each."""


EPOCH_FIRST: Final = 0
"""The leader epoch in which a partition begins: a partition without a known epoch was led in this one, or later."""


class ProduceReport(Protocol):
    """The part of a delivery report that counts (`confluent_kafka.Message` has it)."""

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


class InFlightBatch:
    """A batch that is sent record by record, and reported record by record in any order."""

    __slots__ = ("_leader_epochs", "_partitions", "events", "failure", "first", "last", "refused", "unreported")

    def __init__(self, first: int, leader_epochs: LeaderEpochs) -> None:
        """Begin a batch; `leader_epochs` are those read before its first send."""
        self._leader_epochs = leader_epochs
        self.first = first
        self.last = first - 1
        self.failure: str | None = None
        self.refused = False
        """Whether the broker has refused as too large a request that held some of it."""
        self.events = 0
        self.unreported = 0
        self._partitions: dict[int, list[int]] = {}

    def sent(self, position: int) -> None:
        """Count a record that the producer has accepted."""
        self.last = position
        self.events += 1
        self.unreported += 1

    def report(self, error: KafkaError | None, message: ProduceReport) -> None:
        """Record a delivery report; one without an offset counts as not sent."""
        self.unreported -= 1
        offset, partition = message.offset(), message.partition()
        if error is not None:
            self.failure = str(error)
            self.refused |= error.code() in TOO_LARGE_CODES
        elif offset is None or offset < 0 or partition is None:
            self.failure = "a delivery was reported without an offset"
        else:
            span = self._partitions.get(partition)
            if span is None:
                self._partitions[partition] = [offset, offset]
            elif offset > span[1]:
                span[1] = offset
            elif offset < span[0]:
                span[0] = offset

    @property
    def acked(self) -> bool:
        """Whether the broker has all of it."""
        return self.unreported == 0 and self.failure is None

    @property
    def partitions(self) -> Collection[int]:
        return self._partitions.keys()

    def batch(self, topic_id: str, leader_epochs: LeaderEpochs) -> Batch:
        """Return the batch for the outbox; `leader_epochs` are those read after the last ack.

        Raise RenewalError where a partition's epoch is not what it was before the first send. Epochs only grow:
        one that is equal at both times was so between them, so that leader has appended all of the batch, and the
        log was not truncated meanwhile (decision 36). Raise SessionError where a leader has not answered: that does not
        prove a change.
        """
        spans: dict[int, Offsets] = {}
        for partition, (low, high) in sorted(self._partitions.items()):
            before, after = self._leader_epochs.get(partition, EPOCH_FIRST), leader_epochs.get(partition)
            if after is None:
                raise SessionError(f"partition {partition}: its leader does not report its epoch")
            if after != before:
                raise RenewalError(f"partition {partition}: leader epoch {before} before the send, {after} now")
            spans[partition] = Offsets(low, high, after)
        return Batch(self.first, self.last, topic_id, spans)


class InFlightWindow:
    """The in-flight batches of one producer session, in the order of the outbox.

    Batches leave in that order only: acked once the batch and all before it are reported, marked once the topic was
    confirmed after that.
    """

    def __init__(self, batches_max: int) -> None:
        self._batches_max = batches_max
        self._in_flight: deque[InFlightBatch] = deque()
        self._acked: deque[InFlightBatch] = deque()
        self.noted = Acked(self)
        """The acked batches that are not confirmed."""

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def acked(self) -> int:
        return len(self._acked)

    @property
    def confirmed_to(self) -> int:
        return self.noted.to - len(self._acked)

    @property
    def empty(self) -> bool:
        return not self._in_flight and not self._acked

    @property
    def has_space(self) -> bool:
        return len(self._in_flight) < self._batches_max and len(self._acked) < ACKED_MAX

    def add(self, batch: InFlightBatch) -> None:
        """Append a batch that begins after all others."""
        self._in_flight.append(batch)

    @property
    def unreported(self) -> int:
        """How many records are sent and not reported."""
        return sum(batch.unreported for batch in self._in_flight)

    def advance(self) -> InFlightBatch | None:
        """Move the acked batches, in order; return a batch that has failed, None where there is none."""
        while self._in_flight and self._in_flight[0].acked:
            batch, noted = self._in_flight.popleft(), self.noted
            self._acked.append(batch)
            self.noted = Acked(
                self, noted.to + 1, noted.events + batch.events, noted.partitions.union(batch.partitions)
            )
        return next((batch for batch in self._in_flight if batch.failure is not None), None)

    def drop(self, batch: InFlightBatch) -> None:
        """Remove a batch that has failed for good."""
        self._in_flight.remove(batch)

    def pop_confirmed(self, to: int) -> list[InFlightBatch]:
        """Remove and return the acked batches up to `Acked.to`, which were confirmed and are to be marked."""
        confirmed = [self._acked.popleft() for _ in range(to - self.confirmed_to)]
        partitions = frozenset(partition for batch in self._acked for partition in batch.partitions)
        self.noted = replace(self.noted, events=sum(batch.events for batch in self._acked), partitions=partitions)
        return confirmed
