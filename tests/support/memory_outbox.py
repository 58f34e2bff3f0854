"""An outbox in memory: implements `agent.store.port.Outbox` except for durability."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from agent.store.port import Batch, LabelRange, StoredEvent
from contract.event import Event, Label
from contract.fingerprint import fingerprint, needs_label
from contract.record import ClockTrust, SharedDay, encode_tail

EPOCH = "0123456789abcdef"
RECEIVED = 1_763_706_000_000


class MemoryOutbox:
    """Events at positions 1, 2, 3 …, and the batches that contain some of them."""

    def __init__(self, *events: Event) -> None:
        self._changed = threading.Condition()
        self._events: list[StoredEvent] = []
        self._forwarded: list[Batch] = []
        self._covered: set[int] = set()
        self._lowest_new = 1
        self._returned = False
        self._facts: dict[str, str] = {}
        self._epoch = EPOCH
        self.given_up: dict[int, str] = {}
        self.released: list[tuple[int, int]] = []
        self.processed: list[Batch] = []
        self.old_to = 0
        """The highest position whose event is older than any lifetime."""
        self.reads = 0
        """Number of reads that returned events."""
        self.append(*events)

    def append(self, *events: Event, via: str = "coap") -> None:
        """Store events as the writer does; via "gateway", as the gateway's own events."""
        with self._changed:
            for event in events:
                self._events.append(stored(len(self._events) + 1, event, via, self._epoch))
            self._changed.notify_all()

    @property
    def new(self) -> int:
        """The number of events that are not forwarded yet."""
        with self._changed:
            return len(self._events) - len(self._covered)

    def stored(self) -> list[StoredEvent]:
        with self._changed:
            return list(self._events)

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        with self._changed:
            first = self._next_new(after)
            events: list[StoredEvent] = []
            size = 0
            for event in self._events[first - 1 : first - 1 + events_max]:
                size += len(event.tail)
                if event.position in self._covered or (events and size > bytes_max):
                    break
                events.append(event)
            self.reads += bool(events)
            return events

    def end(self) -> int:
        with self._changed:
            return len(self._events)

    def wait(self, after: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._returned or self._next_new(after) <= len(self._events), seconds)

    def pop_returned(self) -> bool:
        with self._changed:
            returned, self._returned = self._returned, False
            return returned

    def epoch(self) -> str:
        return self._epoch

    def has_epoch(self, epoch: str) -> bool:
        return any(event.label.epoch == epoch for event in self.stored())

    def reopen(self, epoch: str) -> None:
        """Continue with another epoch, as after a restart of the agent."""
        self._epoch = epoch

    def lose_epoch(self, last: int, epoch: str) -> None:
        """Label the events up to a position anew, as a salvage that has lost their epoch."""
        with self._changed:
            renewed = [replace(event, label=Label(epoch, event.position)) for event in self._events[:last]]
            self._events[:last] = renewed

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        with self._changed:
            if note is not None:
                self._facts[note[0]] = note[1]
            positions = range(batch.first, batch.last + 1)
            assert self._covered.isdisjoint(positions), f"{batch} is forwarded already"
            assert not self._forwarded or batch.last <= len(self._events), f"{batch} is not stored"
            self._forwarded.append(batch)
            self._covered.update(positions)
            self._changed.notify_all()

    def forwarded(self) -> Sequence[Batch]:
        with self._changed:
            return sorted(self._forwarded, key=lambda batch: batch.first)

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        with self._changed:
            for batch in batches:
                self._forwarded.remove(batch)
                self.processed.append(batch)
            self._changed.notify_all()

    def return_batches(self, batches: Sequence[Batch]) -> None:
        with self._changed:
            for batch in batches:
                self._forwarded.remove(batch)
                self._covered.difference_update(range(batch.first, batch.last + 1))
                self._lowest_new = min(self._lowest_new, batch.first)
            self._returned = True
            self._changed.notify_all()

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        with self._changed:
            labels = [event.label for event in self._events[first - 1 : last]]
        epochs = [list(of_epoch) for _, of_epoch in groupby(labels, lambda label: label.epoch)]
        return tuple(LabelRange(each[0].epoch, each[0].sequence, each[-1].sequence) for each in epochs)

    def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
        with self._changed:
            positions = range(first, last + 1)
            if not self._covered.isdisjoint(positions):
                return False
            self._covered.update(positions)
            self.released.append((first, last))
            self._facts[note[0]] = note[1]
            self._changed.notify_all()
            return True

    def give_up(self, position: int, reason: str) -> None:
        with self._changed:
            assert position not in self.given_up
            self._covered.add(position)
            self.given_up[position] = reason
            self._changed.notify_all()

    def expire(self, first: int, last: int, lifetime_seconds: float) -> int:
        positions = range(first, min(last, self.old_to) + 1)
        for position in positions:
            self.give_up(position, "expired")
        return len(positions)

    def fact(self, name: str) -> str | None:
        with self._changed:
            return self._facts.get(name)

    def set_fact(self, name: str, value: str) -> None:
        with self._changed:
            self._facts[name] = value

    def _next_new(self, after: int) -> int:
        while self._lowest_new in self._covered:
            self._lowest_new += 1
        position = max(after + 1, self._lowest_new)
        while position in self._covered:
            position += 1
        return position


def stored(position: int, event: Event, via: str = "coap", epoch: str = EPOCH) -> StoredEvent:
    label = Label(epoch, position)
    joins = needs_label(event)
    shared = SharedDay.LABEL if joins else SharedDay.TIME if event.time is not None else SharedDay.NONE
    received = RECEIVED + position
    bound = {SharedDay.LABEL: received, SharedDay.TIME: event.time, SharedDay.NONE: None}[shared]
    name = fingerprint(event, label=label if joins else None)
    return StoredEvent(position, name, encode_tail(event, received, via), ClockTrust.TRUSTED, shared, bound, label)
