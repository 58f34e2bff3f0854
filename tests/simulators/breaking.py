"""Operators that make one thing wrong in a true history; each returns None where the history has nothing to break."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import TypeAlias, TypeVar

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Acked, Happened, Refused, Sent, Told
from simulators.oracle.casebook import AHEAD
from tests.simulators.true_histories import Run

T = TypeVar("T")
Broken: TypeAlias = Run | None
Operator: TypeAlias = Callable[[Run, Random], Broken]

OPERATORS: dict[str, tuple[Operator, frozenset[str]]] = {}
"""By name: the operator, and the faults of which at least one must be named."""


def _breaks(*faults: str) -> Callable[[Operator], Operator]:
    def enter(operator: Operator) -> Operator:
        OPERATORS[operator.__name__] = operator, frozenset(faults)
        return operator

    return enter


@_breaks("lost")
def lose(true: Run, random: Random) -> Broken:
    """Take an event that must be there out of topic and table."""
    row = _one(_due(true), random)
    return None if row is None else _without(true, row)


@_breaks("lost")
def lose_in_the_job(true: Run, random: Random) -> Broken:
    """Take an event that must be there out of the table."""
    row = _one(_due(true), random)
    return None if row is None else replace(true, table=[one for one in true.table if one is not row])


@_breaks("doubled")
def write_twice(true: Run, random: Random) -> Broken:
    """Write a row twice."""
    row = _one(true.table, random)
    return None if row is None else replace(true, table=[*true.table, row])


@_breaks("doubled")
def write_both_copies(true: Run, random: Random) -> Broken:
    """Write a record and its repeat."""
    offsets = {(row.partition, row.offset) for row in true.table}
    labels = {(row.epoch, row.sequence) for row in true.table}
    repeats = [
        record
        for record in true.topic
        if (record.epoch, record.sequence) in labels and (record.partition, record.offset) not in offsets
    ]
    repeat = _one(repeats, random)
    return None if repeat is None else replace(true, table=[*true.table, repeat])


@_breaks("changed", "invented")
def change_data(true: Run, random: Random) -> Broken:
    """Change what a sensor said, on its way to the topic."""
    return _replaced(true, random, data={"t": -1})


@_breaks("changed", "invented")
def change_data_in_the_job(true: Run, random: Random) -> Broken:
    """Change what a sensor said, on its way to the table."""
    row = _one(true.table, random)
    return None if row is None else _with_row(true, row, row._replace(data={"t": -1}))


@_breaks("invented")
def take_for_another_sensor(true: Run, random: Random) -> Broken:
    """Credit an event to another device."""
    return _replaced(true, random, device="urn:dev:9")


@_breaks("invented")
def take_for_another_type(true: Run, random: Random) -> Broken:
    """Change an event's type."""
    return _replaced(true, random, type="alarm")


@_breaks("invented")
def invent_a_boot_count(true: Run, random: Random) -> Broken:
    """Give an event a boot count that its sensor did not say."""
    return _replaced(true, random, boot=3)


@_breaks("changed")
def take_an_integer_for_a_text(true: Run, random: Random) -> Broken:
    """Write an integer id as a text."""
    record = _one([one for one in true.topic if isinstance(one.id, int)], random)
    if record is None:
        return None
    said = {str(one.id) for one in true.topic if isinstance(one.id, str)}
    if str(record.id) in said:
        return None
    return replace(true, topic=[one._replace(id=str(one.id)) if one.id == record.id else one for one in true.topic])


@_breaks("invented", "doubled")
def write_what_was_never_in_the_topic(true: Run, random: Random) -> Broken:
    """Write a row that no record has brought."""
    row = _one(true.table, random)
    if row is None:
        return None
    return replace(true, table=[*true.table, row._replace(sequence=9_000, offset=9_000, fingerprint="other")])


@_breaks("invented", "mislabelled")
def lose_the_record_of_a_row(true: Run, random: Random) -> Broken:
    """Take a row's record out of the topic."""
    row = _one(true.table, random)
    return None if row is None else replace(true, topic=[one for one in true.topic if not _is_of(row, one)])


@_breaks("mislabelled")
def shift_a_rows_label(true: Run, random: Random) -> Broken:
    """Write a row under a label that nobody has."""
    return _with_changed_row(true, random, sequence=9_000)


@_breaks("mislabelled")
def shift_a_rows_epoch(true: Run, random: Random) -> Broken:
    """Write a row under an epoch that nobody has."""
    return _with_changed_row(true, random, epoch="other")


@_breaks("mislabelled")
def shift_a_rows_place(true: Run, random: Random) -> Broken:
    """Write a row with an offset that nobody has."""
    return _with_changed_row(true, random, offset=9_000)


@_breaks("mislabelled")
def write_another_fingerprint(true: Run, random: Random) -> Broken:
    """Write a row with another fingerprint than its record's."""
    return _with_changed_row(true, random, fingerprint="other")


@_breaks("mislabelled")
def write_another_gateway(true: Run, random: Random) -> Broken:
    """Write a row under a gateway that nobody has."""
    return _with_changed_row(true, random, gateway="gw9")


@_breaks("mislabelled")
def leave_a_label_out(true: Run, random: Random) -> Broken:
    """Write a row without its label."""
    return _with_changed_row(true, random, epoch=None, sequence=None)


@_breaks("mislabelled")
def exchange_contents(true: Run, random: Random) -> Broken:
    """Write what one record says under the label of another."""
    first = _one(true.table, random)
    if first is None:
        return None
    second = _one([row for row in true.table if _content(row) != _content(first)], random)
    if second is None:
        return None
    fields = ("device", "type", "id", "time", "data", "boot")
    of_first, of_second = ({name: getattr(row, name) for name in fields} for row in (first, second))
    exchanged = _with_row(true, first, first._replace(**of_second))
    return _with_row(exchanged, second, second._replace(**of_first))


@_breaks("mislabelled")
def give_a_label_to_two_events(true: Run, random: Random) -> Broken:
    """Use a label again for an event that says something else."""
    first = _one(true.table, random)
    if first is None:
        return None
    second = _one([row for row in true.table if _content(row) != _content(first)], random)
    if second is None:
        return None
    return _altered(true, second, epoch=first.epoch, sequence=first.sequence)


@_breaks("mislabelled")
def label_an_event_again(true: Run, random: Random) -> Broken:
    """Forget an event that is known by id or time, and label it again in the same epoch."""
    record = _one([one for one in true.topic if not (one.id is None and one.time is None)], random)
    return None if record is None else replace(true, topic=[*true.topic, record._replace(sequence=9_000, offset=9_000)])


@_breaks("disordered")
def swap_sequences(true: Run, random: Random) -> Broken:
    """Let two events of a device that followed one another exchange their sequences."""
    return _swapped(true, random, "sequence")


@_breaks("disordered")
def swap_offsets(true: Run, random: Random) -> Broken:
    """Let two events of a device that followed one another exchange their offsets."""
    return _swapped(true, random, "offset")


@_breaks("disordered")
def lose_the_key(true: Run, random: Random) -> Broken:
    """Move one of a device's records to another partition."""
    devices = Counter(record.device for record in true.topic)
    record = _one([one for one in true.topic if devices[one.device] > 1], random)
    if record is None or all(_is_labelled_as(record, one) for one in true.topic if one.device == record.device):
        return None
    return _altered(true, record, partition=7)


@_breaks("invented")
def refuse_what_is_stored(true: Run, random: Random) -> Broken:
    """Refuse an event that was sent in one request, and store it."""
    if true.scope.gateways > 1:
        return None
    requests = Counter(line.mark for line in true.lines if isinstance(line, Sent) and not line.again)
    mark = _one([one for one in _marks_of_rows(true) if requests[one] == 1], random)
    if mark is None:
        return None
    lines = [
        Refused(line.at, mark, "4.00") if isinstance(line, Acked) and line.mark == mark else line for line in true.lines
    ]
    return replace(true, lines=lines)


@_breaks("invented")
def store_what_was_never_sent(true: Run, random: Random) -> Broken:
    """Store an event that never left its sensor."""
    mark = _one(_marks_of_rows(true), random)
    if mark is None:
        return None
    return replace(true, lines=[line for line in true.lines if not (isinstance(line, Sent) and line.mark == mark)])


@_breaks("invented")
def store_before_it_was_sent(true: Run, random: Random) -> Broken:
    """Give an event's records and rows a moment before its first transmission."""
    mark = _one(_marks_of_rows(true), random)
    if mark is None:
        return None
    event = _told(true)[mark].event
    said = (event.device, event.id, event.time, event.data)

    def early(row: Row) -> Row:
        return row._replace(at=0) if (row.device, row.id, row.time, row.data) == said else row

    return replace(true, topic=list(map(early, true.topic)), table=list(map(early, true.table)))


@_breaks("invented")
def process_before_it_was_in_kafka(true: Run, random: Random) -> Broken:
    """Give a row a moment before its record's."""
    return _with_changed_row(true, random, at=0)


@_breaks("premature")
def give_receipts_too_soon(true: Run, random: Random) -> Broken:
    """Give receipts for what the table does not have."""
    return replace(true, lines=[*true.lines, Happened(0, "job", f"{AHEAD}{random.randint(1, 9)}")])


@_breaks("misdeclared")
def declare_what_is_there(true: Run, random: Random) -> Broken:
    """Declare a gap over an event that is in the topic."""
    record = _one(true.topic, random)
    if record is None:
        return None
    data = {"labels": [[record.epoch, record.sequence, record.sequence]]}
    gap = Row("urn:oncegate:gateway:gw1", "gateway.gap", "x", None, data, None, "e", 1, 0, 9_000, "f", 0)
    return replace(true, topic=[*true.topic, gap])


def _one(choices: list[T], random: Random) -> T | None:
    return random.choice(choices) if choices else None


def _content(row: Row | Event) -> tuple[object, ...]:
    return (row.device, row.type, str(row.id), row.time, str(row.data))


def _is_labelled_as(row: Row, other: Row) -> bool:
    return (row.epoch, row.sequence) == (other.epoch, other.sequence)


def _is_of(row: Row, record: Row) -> bool:
    return (row.partition, row.offset) == (record.partition, record.offset)


def _told(true: Run) -> dict[int, Told]:
    return {line.mark: line for line in true.lines if isinstance(line, Told)}


def _with_row(true: Run, row: Row, other: Row) -> Run:
    return replace(true, table=[other if one is row else one for one in true.table])


def _with_changed_row(true: Run, random: Random, **fields: object) -> Broken:
    row = _one(true.table, random)
    return None if row is None else _with_row(true, row, row._replace(**fields))  # type: ignore[arg-type]


def _replaced(true: Run, random: Random, **fields: object) -> Broken:
    """Change a row and all records of its label."""
    row = _one(true.table, random)
    return None if row is None else _altered(true, row, **fields)


def _altered(true: Run, row: Row, **fields: object) -> Run:
    """Change whatever has the row's label."""

    def changed(one: Row) -> Row:
        return one._replace(**fields) if _is_labelled_as(row, one) else one  # type: ignore[arg-type]

    return replace(true, topic=list(map(changed, true.topic)), table=list(map(changed, true.table)))


def _without(true: Run, row: Row) -> Run:
    """Take a row out, and every record that says the same."""
    return replace(
        true,
        topic=[one for one in true.topic if one.fingerprint != row.fingerprint],
        table=[one for one in true.table if one is not row],
    )


def _due(true: Run) -> list[Row]:
    """Find rows whose loss can be seen: as many events of that content were acked as there are rows."""
    told = _told(true)
    acked: Counter[tuple[object, ...]] = Counter()
    for line in true.lines:
        if isinstance(line, Acked):
            event = told[line.mark].event
            said = _content(event)
            acked[said] = acked[said] + 1 if event.id is None and event.time is None else 1
    stored = Counter(map(_content, true.table))
    return [row for row in true.table if acked[_content(row)] == stored[_content(row)]]


def _unique_labels(true: Run) -> dict[int, Row]:
    """Find the first records, by mark, of events that say what no other says, and that have one label."""
    told = _told(true)
    said = Counter(_content(one.event) for one in told.values())
    labels: dict[tuple[object, ...], set[object]] = defaultdict(set)
    first: dict[tuple[object, ...], Row] = {}
    for record in true.topic:
        labels[_content(record)].add((record.epoch, record.sequence))
        first.setdefault(_content(record), record)
    contents = {mark: _content(one.event) for mark, one in told.items()}
    return {mark: first[one] for mark, one in contents.items() if said[one] == 1 and len(labels[one]) == 1}


def _marks_of_rows(true: Run) -> list[int]:
    acked = {line.mark for line in true.lines if isinstance(line, Acked)}
    return [mark for mark in _unique_labels(true) if mark in acked]


def _successions(true: Run) -> Iterator[tuple[Row, Row]]:
    """Yield the first records of pairs of events of one device and epoch, sent once each and one after the other."""
    labels = _unique_labels(true)
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


def _swapped(true: Run, random: Random, name: str) -> Broken:
    pair = _one(list(_successions(true)), random)
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
