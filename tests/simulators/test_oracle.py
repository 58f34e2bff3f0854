from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from contract.event import Event
from simulators import table
from simulators.ledger import Acked, LedgerError, Line, Sent, Told
from simulators.oracle import Verdict, audit, canonical
from simulators.table import Row
from simulators.voice import Kind, Voice, kind_of, nature

SENSORS = 12
EVENTS_EACH = 25
NOW = 1_763_706_000_000


def _truth() -> list[Line]:
    """Play a field in which everything was sent twice and acked once."""
    lines: list[Line] = []
    mark = 0
    for index in range(SENSORS):
        voice = Voice(nature(index), Random(index))
        for _ in range(EVENTS_EACH):
            mark += 1
            lines += [Told(0, mark, voice.next_event(NOW)), Sent(1, mark), Sent(2, mark), Acked(3, mark)]
    return lines


def _rows(lines: Iterable[Line]) -> list[Row]:
    return [_row(line.event) for line in lines if isinstance(line, Told)]


def _row(event: Event) -> Row:
    return Row(event.device, event.type, None if event.id is None else str(event.id), event.time, event.data)


TRUTH = _truth()
TABLE = _rows(TRUTH)
ALL = len(TABLE)


def _counts(verdict: Verdict) -> tuple[int, int, int, int]:
    return verdict.lost, verdict.doubled, verdict.invented, verdict.changed


def _some(kind: Kind) -> int:
    told = [line.event for line in TRUTH if isinstance(line, Told)]
    return next(index for index, event in enumerate(told) if kind_of(event) is kind)


def test_the_truth_is_kept() -> None:
    verdict = audit(TRUTH, reversed(TABLE))
    assert verdict.kept
    assert (verdict.events, verdict.acked, verdict.rows) == (ALL, ALL, ALL)
    assert verdict.equal_readings > 0.3 * ALL
    assert verdict.violations == ()


@pytest.mark.parametrize("kind", Kind)
def test_a_lost_event_is_caught(kind: Kind) -> None:
    gone = _some(kind)
    verdict = audit(TRUTH, TABLE[:gone] + TABLE[gone + 1 :])
    assert _counts(verdict) == (1, 0, 0, 0)
    assert not verdict.kept
    assert TABLE[gone].device in str(verdict.violations[0])
    assert str(verdict.violations[0]).startswith("lost: ")


@pytest.mark.parametrize("kind", Kind)
def test_a_doubled_event_is_caught(kind: Kind) -> None:
    assert _counts(audit(TRUTH, [*TABLE, TABLE[_some(kind)]])) == (0, 1, 0, 0)


INVENTED = [
    Row(TABLE[_some(Kind.ID)].device, "reading", "10000", None, {"temperature": 21}),
    Row(TABLE[_some(Kind.TIME)].device, "reading", None, NOW - 1, {"temperature": 21}),
    Row(TABLE[_some(Kind.NEITHER)].device, "reading", None, None, {"temperature": 99}),
    Row("urn:dev:mac:02005effffffffff", "reading", "1", None, {"temperature": 21}),
]


@pytest.mark.parametrize("row", INVENTED)
def test_an_invented_event_is_caught(row: Row) -> None:
    assert _counts(audit(TRUTH, [*TABLE, row])) == (0, 0, 1, 0)


@pytest.mark.parametrize("kind", [Kind.ID, Kind.TIME])
def test_changed_data_is_caught(kind: Kind) -> None:
    rows = list(TABLE)
    row = rows[_some(kind)]
    rows[_some(kind)] = Row(row.device, row.type, row.id, row.time, {"temperature": -40})
    assert _counts(audit(TRUTH, rows)) == (0, 0, 0, 1)


def test_changed_data_of_an_event_with_neither_is_one_lost_and_one_invented() -> None:
    rows = list(TABLE)
    row = rows[_some(Kind.NEITHER)]
    rows[_some(Kind.NEITHER)] = Row(row.device, row.type, None, None, {"temperature": -40})
    assert _counts(audit(TRUTH, rows)) == (1, 0, 1, 0)


def _by(key: Callable[[Row], object]) -> list[Row]:
    return list({key(row): row for row in TABLE}.values())


def test_a_dedup_by_content_alone_is_caught() -> None:
    kept = _by(lambda row: (row.device, row.type, canonical(row.data)))
    verdict = audit(TRUTH, kept)
    assert verdict.lost == verdict.equal_readings == ALL - len(kept)


def test_a_dedup_that_drops_equal_readings_without_id_and_time_is_caught() -> None:
    kept = _by(lambda row: (row.device, row.type, row.id, row.time, canonical(row.data)))
    verdict = audit(TRUTH, kept)
    assert verdict.lost == ALL - len(kept) > 0
    assert {violation.key[2] for violation in verdict.violations} == {Kind.NEITHER}


def test_no_dedup_at_all_is_caught() -> None:
    assert _counts(audit(TRUTH, TABLE * 2)) == (0, ALL, 0, 0)


def test_an_unacked_event_may_be_there_once_or_not_at_all() -> None:
    event = Event("d", id=1, data={"a": 1})
    sent: list[Line] = [Told(0, 1, event), Sent(0, 1)]
    assert audit(sent, []).kept
    assert audit(sent, [_row(event)]).kept
    assert audit(sent, [_row(event)] * 2).doubled == 1


def test_an_event_that_was_never_sent_may_not_be_there() -> None:
    event = Event("d", id=1)
    assert audit([Told(0, 1, event)], [_row(event)]).doubled == 1


def test_unacked_twins_with_neither_are_counted() -> None:
    event = Event("d", data={"a": 1})
    lines: list[Line] = [Told(0, 1, event), Told(0, 2, event), Sent(0, 1), Sent(0, 2), Acked(0, 2)]
    assert [_counts(audit(lines, [_row(event)] * rows))[:2] for rows in range(4)] == [(1, 0), (0, 0), (0, 0), (0, 1)]


def test_a_sensor_that_gives_one_id_to_two_events_is_not_blamed_on_the_path() -> None:
    first, second = Event("d", id=1, data={"a": 1}), Event("d", id=1, data={"a": 2})
    with pytest.raises(LedgerError, match="known by"):
        audit([Told(0, 1, first), Told(0, 2, second)], [])


def test_numbers_are_equal_in_every_spelling() -> None:
    assert canonical({"b": [2.0, True], "a": {"c": 0.5}}) == canonical({"a": {"c": 0.5}, "b": [2, True]})
    assert canonical({"a": 2.5}) != canonical({"a": 2})
    assert canonical({"a": True}) != canonical({"a": 1})


def test_a_table_on_disk_is_read_as_it_is(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "device": _texts("urn:oncegate:gateway:g", TABLE[0].device, TABLE[1].device),
        "type": _texts("gateway.started", "reading", "alarm"),
        "id": _texts("00ff", "17", None),
        "event_time": _moments(None, None, NOW + 7),
        "data": _texts(None, '{"temperature":21.50}', '{"open":true,"of":[1,{"a":"ü"}]}'),
    }
    write_deltalake(tmp_path, Table.from_pydict(columns))

    assert list(table.read(tmp_path)) == [
        Row(TABLE[0].device, "reading", "17", None, {"temperature": 21.5}),
        Row(TABLE[1].device, "alarm", None, NOW + 7, {"open": True, "of": [1, {"a": "ü"}]}),
    ]
    write_deltalake(tmp_path, Table.from_pydict(columns), mode="append")
    assert len(list(table.read(tmp_path))) == 4


def _texts(*values: str | None) -> Array:
    return Array(values, DataType.string())


def _moments(*milliseconds: int | None) -> Array:
    microseconds = [None if moment is None else moment * 1000 + 999 for moment in milliseconds]
    return Array(microseconds, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert list(table.read(tmp_path / "none")) == []
