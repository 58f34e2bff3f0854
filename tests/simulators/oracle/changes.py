"""Changes of a run: each returns a changed copy, or None where the run offers no occasion."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TypeVar

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Acked, Reported, Sent
from tests.simulators.oracle.true_histories import Run

T = TypeVar("T")


def choose(choices: list[T], random: Random) -> T | None:
    return random.choice(choices) if choices else None


def choose_two(true: Run, random: Random) -> tuple[Row, Row] | None:
    """Return two rows with different contents; None where there are none."""
    first = choose(true.table, random)
    second = None if first is None else choose([row for row in true.table if content(row) != content(first)], random)
    return None if first is None or second is None else (first, second)


def content(row: Row | Event) -> tuple[object, ...]:
    return (row.device, row.type, str(row.id), row.time, str(row.data))


def is_labelled_as(row: Row, other: Row) -> bool:
    return (row.epoch, row.sequence) == (other.epoch, other.sequence)


def is_of(row: Row, record: Row) -> bool:
    return (row.partition, row.offset) == (record.partition, record.offset)


def reported_events(true: Run) -> dict[int, Reported]:
    return {line.mark: line for line in true.lines if isinstance(line, Reported)}


def with_row(true: Run, row: Row, other: Row) -> Run:
    return replace(true, table=[other if one is row else one for one in true.table])


def with_changed_row(true: Run, random: Random, **fields: object) -> Run | None:
    row = choose(true.table, random)
    return None if row is None else with_row(true, row, row._replace(**fields))  # type: ignore[arg-type]


def replaced(true: Run, random: Random, **fields: object) -> Run | None:
    """Change a row and all records of its label."""
    row = choose(true.table, random)
    return None if row is None else altered(true, row, **fields)


def altered(true: Run, row: Row, **fields: object) -> Run:
    """Change everything with the row's label."""

    def changed(one: Row) -> Row:
        return one._replace(**fields) if is_labelled_as(row, one) else one  # type: ignore[arg-type]

    return replace(true, topic=list(map(changed, true.topic)), table=list(map(changed, true.table)))


def without(true: Run, row: Row) -> Run:
    """Remove a row and every record with its fingerprint."""
    return replace(
        true,
        topic=[one for one in true.topic if one.fingerprint != row.fingerprint],
        table=[one for one in true.table if one is not row],
    )


def due(true: Run) -> list[Row]:
    """Return rows whose loss is detectable: as many events of that content were acked as there are rows."""
    reported = reported_events(true)
    acked: Counter[tuple[object, ...]] = Counter()
    for line in true.lines:
        if isinstance(line, Acked):
            event = reported[line.mark].event
            said = content(event)
            acked[said] = acked[said] + 1 if event.id is None and event.time is None else 1
    stored = Counter(map(content, true.table))
    return [row for row in true.table if acked[content(row)] == stored[content(row)]]


def unique_labels(true: Run) -> dict[int, Row]:
    """Return the first records, by mark, of events with unique contents and one label."""
    reported = reported_events(true)
    said = Counter(content(one.event) for one in reported.values())
    labels: dict[tuple[object, ...], set[object]] = defaultdict(set)
    first: dict[tuple[object, ...], Row] = {}
    for record in true.topic:
        labels[content(record)].add((record.epoch, record.sequence))
        first.setdefault(content(record), record)
    contents = {mark: content(one.event) for mark, one in reported.items()}
    return {mark: first[one] for mark, one in contents.items() if said[one] == 1 and len(labels[one]) == 1}


def marks_of_rows(true: Run) -> list[int]:
    acked = {line.mark for line in true.lines if isinstance(line, Acked)}
    return [mark for mark in unique_labels(true) if mark in acked]


def successions(true: Run) -> Iterator[tuple[Row, Row]]:
    """Yield the first records of pairs of consecutive events of one device and epoch, each sent once."""
    labels = unique_labels(true)
    requests = Counter(line.mark for line in true.lines if isinstance(line, Sent) and not line.again)
    sent: dict[int, int] = {}
    acked: dict[int, int] = {}
    for number, line in enumerate(true.lines):
        if isinstance(line, Sent):
            sent.setdefault(line.mark, number)
        elif isinstance(line, Acked):
            acked[line.mark] = number
    alone = [mark for mark in labels if requests[mark] == 1]
    for first in alone:
        for second in alone:
            before, after = labels[first], labels[second]
            if (before.device, before.epoch) == (after.device, after.epoch) and acked.get(first, 1 << 30) < sent[
                second
            ]:
                yield before, after


def swapped(true: Run, random: Random, name: str) -> Run | None:
    pair = choose(list(successions(true)), random)
    if pair is None:
        return None
    first, second = pair
    values = {
        (first.epoch, first.sequence): getattr(second, name),
        (second.epoch, second.sequence): getattr(first, name),
    }

    def swapped(row: Row) -> Row:
        value = values.get((row.epoch, row.sequence))
        return row if value is None else row._replace(**{name: value})

    return replace(true, topic=list(map(swapped, true.topic)), table=list(map(swapped, true.table)))
