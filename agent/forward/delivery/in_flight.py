"""The bookkeeping of what is on its way: batches in flight, and those acked whose topic is not yet confirmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final, Protocol

from confluent_kafka import KafkaError

from agent.forward.delivery.oversized import TOO_LARGE_CODES
from agent.forward.errors import LeaderChangedError, SessionError
from agent.forward.kafka.topic import LeaderEpochs
from agent.store.port import Batch, Offsets

ACKED_MAX: Final = 1_000
"""Batches that are acked and wait for the topic to be confirmed; a few hundred bytes each."""


EPOCH_FIRST: Final = 0
"""The leader epoch in which a partition begins: one of which nothing is known was led in it, or later."""


class Report(Protocol):
    """The part of a delivery report that counts (`confluent_kafka.Message` has it)."""

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


class Flight:
    """A batch on its way: sent record by record, reported record by record in any order."""

    __slots__ = ("_leader_epochs", "_partitions", "_sent", "_unreported", "failure", "first", "last", "refused")

    def __init__(self, first: int, leader_epochs: LeaderEpochs) -> None:
        """Begin a batch; `leader_epochs` is what was known of the topic before its first send."""
        self._leader_epochs = leader_epochs
        self.first = first
        self.last = first - 1
        self.failure: str | None = None
        self.refused = False
        """Whether the broker has found a request too large that held some of it."""
        self._sent = 0
        self._unreported = 0
        self._partitions: dict[int, list[int]] = {}

    def sent(self, position: int) -> None:
        """Count a record that the producer has taken."""
        self.last = position
        self._sent += 1
        self._unreported += 1

    def report(self, error: KafkaError | None, message: Report) -> None:
        """Take a delivery report; one without an offset counts as not sent."""
        self._unreported -= 1
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
        return self._unreported == 0 and self.failure is None

    @property
    def events(self) -> int:
        return self._sent

    @property
    def unreported(self) -> int:
        return self._unreported

    @property
    def partitions(self) -> Collection[int]:
        """Where its records are."""
        return self._partitions.keys()

    def batch(self, topic_id: str, leader_epochs: LeaderEpochs) -> Batch:
        """Return what the outbox has to remember; `leader_epochs` was asked for after the last ack.

        Raises LeaderChangedError where a partition's epoch is not what it was before the first send. As epochs only
        grow, one that is the same at both moments was so between them: that leader has appended all of the batch, and
        nobody has cut the log meanwhile. Raises SessionError where a leader has not answered: nothing says that it is
        another one.
        """
        spans: dict[int, Offsets] = {}
        for partition, (low, high) in sorted(self._partitions.items()):
            before, after = self._leader_epochs.get(partition, EPOCH_FIRST), leader_epochs.get(partition)
            if after is None:
                raise SessionError(f"partition {partition}: its leader does not tell its epoch")
            if after != before:
                raise LeaderChangedError(f"partition {partition}: leader epoch {before} before the send, {after} now")
            spans[partition] = Offsets(low, high, after)
        return Batch(self.first, self.last, topic_id, spans)


class Window:
    """The flights of one producer session, in the order of the outbox.

    A flight leaves in that order only: acked once it and all before it are reported, marked once the topic was
    confirmed after that.
    """

    def __init__(self, flights_max: int) -> None:
        self._flights_max = flights_max
        self._flying: deque[Flight] = deque()
        self._acked: deque[Flight] = deque()

    @property
    def flying(self) -> int:
        return len(self._flying)

    @property
    def acked(self) -> int:
        return len(self._acked)

    def acked_partitions(self) -> set[int]:
        """Return where the records of the acked flights are."""
        return {partition for flight in self._acked for partition in flight.partitions}

    @property
    def empty(self) -> bool:
        return not self._flying and not self._acked

    @property
    def has_room(self) -> bool:
        return len(self._flying) < self._flights_max and len(self._acked) < ACKED_MAX

    def launch(self, flight: Flight) -> None:
        """Take a flight that begins after all others."""
        self._flying.append(flight)

    @property
    def unreported(self) -> int:
        """How many records are sent and not reported."""
        return sum(flight.unreported for flight in self._flying)

    def settle(self) -> Flight | None:
        """Move what is acked in order; give a flight that has failed where there is one."""
        while self._flying and self._flying[0].acked:
            self._acked.append(self._flying.popleft())
        return next((flight for flight in self._flying if flight.failure is not None), None)

    def drop(self, flight: Flight) -> None:
        """Forget a flight that has failed for good."""
        self._flying.remove(flight)

    def take_confirmed(self, count: int) -> list[Flight]:
        """Remove the oldest acked flights, whose topic was confirmed: they are to be marked."""
        return [self._acked.popleft() for _ in range(count)]
