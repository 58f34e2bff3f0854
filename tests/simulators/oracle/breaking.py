"""Operators that add one fault to a true history; each returns None where the history offers no occasion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeAlias

from simulators.evidence.row import Row
from simulators.ledger import Acked, Happened, Refused, Sent
from simulators.oracle.evidence_database import AHEAD
from tests.simulators.oracle.changes import (
    altered,
    choose,
    choose_two,
    due,
    is_labelled_as,
    is_of,
    marks_of_rows,
    replaced,
    reported_events,
    swapped,
    with_changed_row,
    with_row,
    without,
)
from tests.simulators.oracle.true_histories import Run

Broken: TypeAlias = Run | None
Operator: TypeAlias = Callable[[Run, Random], Broken]

OPERATORS: dict[str, tuple[Operator, frozenset[str]]] = {}
"""By name: the operator, and the faults of which the oracle must report at least one."""


def _breaks(*faults: str) -> Callable[[Operator], Operator]:
    def enter(operator: Operator) -> Operator:
        OPERATORS[operator.__name__] = operator, frozenset(faults)
        return operator

    return enter


def _enter(faults: str, change: Callable[..., Broken], name: str, **fields: object) -> None:
    """Register an operator that changes some fields."""
    OPERATORS[name] = (lambda true, random: change(true, random, **fields)), frozenset(faults.split())


# Of a row, and of all records of its label.
_enter("changed invented", replaced, "change_data", data={"t": -1})
_enter("invented", replaced, "take_for_another_sensor", device="urn:dev:9")
_enter("invented", replaced, "take_for_another_type", type="alarm")
_enter("invented", replaced, "invent_a_boot_count", boot=3)
# Of a row alone.
_enter("changed invented", with_changed_row, "change_data_in_the_job", data={"t": -1})
_enter("mislabelled", with_changed_row, "shift_a_rows_label", sequence=9_000)
_enter("mislabelled", with_changed_row, "shift_a_rows_epoch", epoch="other")
_enter("mislabelled", with_changed_row, "shift_a_rows_place", offset=9_000)
_enter("mislabelled", with_changed_row, "write_another_fingerprint", fingerprint="other")
_enter("mislabelled", with_changed_row, "write_another_gateway", gateway="gw9")
_enter("mislabelled", with_changed_row, "leave_a_label_out", epoch=None, sequence=None)
_enter("invented", with_changed_row, "process_before_it_was_in_kafka", at=0)


@_breaks("lost")
def lose(true: Run, random: Random) -> Broken:
    """Remove an event that must exist from topic and table."""
    row = choose(due(true), random)
    return None if row is None else without(true, row)


@_breaks("lost")
def lose_in_the_job(true: Run, random: Random) -> Broken:
    """Remove an event that must exist from the table."""
    row = choose(due(true), random)
    return None if row is None else replace(true, table=[one for one in true.table if one is not row])


@_breaks("doubled")
def write_twice(true: Run, random: Random) -> Broken:
    """Write a row twice."""
    row = choose(true.table, random)
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
    repeat = choose(repeats, random)
    return None if repeat is None else replace(true, table=[*true.table, repeat])


@_breaks("changed")
def take_an_integer_for_a_text(true: Run, random: Random) -> Broken:
    """Write an integer id as text."""
    record = choose([one for one in true.topic if isinstance(one.id, int)], random)
    if record is None:
        return None
    said = {str(one.id) for one in true.topic if isinstance(one.id, str)}
    if str(record.id) in said:
        return None
    return replace(true, topic=[one._replace(id=str(one.id)) if one.id == record.id else one for one in true.topic])


@_breaks("invented", "doubled")
def write_what_was_never_in_the_topic(true: Run, random: Random) -> Broken:
    """Write a row without a record."""
    row = choose(true.table, random)
    if row is None:
        return None
    return replace(true, table=[*true.table, row._replace(sequence=9_000, offset=9_000, fingerprint="other")])


@_breaks("invented", "mislabelled")
def lose_the_record_of_a_row(true: Run, random: Random) -> Broken:
    """Remove a row's record from the topic."""
    row = choose(true.table, random)
    return None if row is None else replace(true, topic=[one for one in true.topic if not is_of(row, one)])


@_breaks("mislabelled")
def exchange_contents(true: Run, random: Random) -> Broken:
    """Write the contents of one record under the label of another."""
    if (chosen := choose_two(true, random)) is None:
        return None
    first, second = chosen
    fields = ("device", "type", "id", "time", "data", "boot")
    of_first, of_second = ({name: getattr(row, name) for name in fields} for row in (first, second))
    exchanged = with_row(true, first, first._replace(**of_second))
    return with_row(exchanged, second, second._replace(**of_first))


@_breaks("mislabelled")
def give_a_label_to_two_events(true: Run, random: Random) -> Broken:
    """Use a label again for an event with other contents."""
    if (chosen := choose_two(true, random)) is None:
        return None
    first, second = chosen
    return altered(true, second, epoch=first.epoch, sequence=first.sequence)


@_breaks("mislabelled")
def label_an_event_again(true: Run, random: Random) -> Broken:
    """Label an event with an id or a time a second time in the same epoch."""
    record = choose([one for one in true.topic if not (one.id is None and one.time is None)], random)
    return None if record is None else replace(true, topic=[*true.topic, record._replace(sequence=9_000, offset=9_000)])


@_breaks("disordered")
def swap_sequences(true: Run, random: Random) -> Broken:
    """Swap the sequences of two consecutive events of a device."""
    return swapped(true, random, "sequence")


@_breaks("disordered")
def swap_offsets(true: Run, random: Random) -> Broken:
    """Swap the offsets of two consecutive events of a device."""
    return swapped(true, random, "offset")


@_breaks("disordered")
def lose_the_key(true: Run, random: Random) -> Broken:
    """Move one of a device's records to another partition."""
    devices = Counter(record.device for record in true.topic)
    record = choose([one for one in true.topic if devices[one.device] > 1], random)
    if record is None or all(is_labelled_as(record, one) for one in true.topic if one.device == record.device):
        return None
    return altered(true, record, partition=7)


@_breaks("invented")
def refuse_what_is_stored(true: Run, random: Random) -> Broken:
    """Refuse an event that was sent in one request, and store it."""
    if true.scope.gateways > 1:
        return None
    requests = Counter(line.mark for line in true.lines if isinstance(line, Sent) and not line.again)
    mark = choose([one for one in marks_of_rows(true) if requests[one] == 1], random)
    if mark is None:
        return None
    lines = [
        Refused(line.at, mark, "4.00") if isinstance(line, Acked) and line.mark == mark else line for line in true.lines
    ]
    return replace(true, lines=lines)


@_breaks("invented")
def store_what_was_never_sent(true: Run, random: Random) -> Broken:
    """Store an event that never left its sensor."""
    mark = choose(marks_of_rows(true), random)
    if mark is None:
        return None
    return replace(true, lines=[line for line in true.lines if not (isinstance(line, Sent) and line.mark == mark)])


@_breaks("invented")
def store_before_it_was_sent(true: Run, random: Random) -> Broken:
    """Set the time of an event's records and rows before its first transmission."""
    mark = choose(marks_of_rows(true), random)
    if mark is None:
        return None
    event = reported_events(true)[mark].event
    said = (event.device, event.id, event.time, event.data)

    def early(row: Row) -> Row:
        return row._replace(at=0) if (row.device, row.id, row.time, row.data) == said else row

    return replace(true, topic=list(map(early, true.topic)), table=list(map(early, true.table)))


@_breaks("premature")
def give_receipts_too_soon(true: Run, random: Random) -> Broken:
    """Add receipts for records that the table does not have."""
    return replace(true, lines=[*true.lines, Happened(0, "job", f"{AHEAD}{random.randint(1, 9)}")])


@_breaks("misdeclared")
def declare_what_is_there(true: Run, random: Random) -> Broken:
    """Declare a gap over an event that is in the topic."""
    record = choose(true.topic, random)
    if record is None:
        return None
    data = {"labels": [[record.epoch, record.sequence, record.sequence]]}
    gap = Row("urn:oncegate:gateway:gw1", "gateway.gap", "x", None, data, None, "e", 1, 0, 9_000, "f", 0)
    return replace(true, topic=[*true.topic, gap])
