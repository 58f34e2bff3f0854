from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from contract.event import Event
from simulators.evidence import delta
from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, Happened, Ledger, LedgerError, Line, Sent, Told, read
from simulators.oracle.casebook import RESTORED, Casebook
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.statement import canonical
from simulators.oracle.verdict import Verdict, from_document, sentence
from simulators.voice import Kind, Voice, kind_of, nature

SENSORS = 12
EVENTS_EACH = 25
NOW = 1_763_706_000_000


def audit(ledger: Iterable[Line], table: Iterable[Row], gateways: int = 1) -> Verdict:
    with Casebook() as casebook:
        casebook.add_ledger(ledger)
        casebook.add_rows(table)
        return judge(casebook, gateways=gateways)


def _truth() -> list[Line]:
    """Play a field in which everything was sent twice and acked once."""
    lines: list[Line] = []
    mark = 0
    for index in range(SENSORS):
        voice = Voice(nature(index), Random(index))
        for _ in range(EVENTS_EACH):
            mark += 1
            again = Sent(2, mark, again=True)
            lines += [Told(0, mark, voice.next_event(NOW)), Sent(1, mark), again, Acked(3, mark)]
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
    assert (verdict.transmissions, verdict.declared) == (2 * ALL, {})
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
    assert verdict.lost == ALL - len(kept) > 0.3 * ALL


def test_a_dedup_that_drops_equal_readings_without_id_and_time_is_caught() -> None:
    kept = _by(lambda row: (row.device, row.type, row.id, row.time, canonical(row.data)))
    verdict = audit(TRUTH, kept)
    assert verdict.lost == ALL - len(kept) > 0
    assert all("id=" not in one.said and "time=" not in one.said for one in verdict.violations)


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


def _sent_and_acked(*events: Event) -> list[Line]:
    return [
        line
        for mark, event in enumerate(events, start=1)
        for line in (Told(0, mark, event), Sent(0, mark), Acked(0, mark))
    ]


def test_an_id_that_is_given_to_two_events_that_differ_makes_two_rows() -> None:
    first, second = Event("d", id=1, data={"a": 1}), Event("d", id=1, data={"a": 2})
    lines = _sent_and_acked(first, second)
    assert audit(lines, [_row(first), _row(second)]).kept
    assert audit(lines, [_row(second)]).lost == 1


def test_two_events_that_say_the_same_are_one_and_declared() -> None:
    event = Event("d", id=1, data={"a": 1})
    lines = _sent_and_acked(event, event)
    verdict = audit(lines, [_row(event)])
    assert verdict.kept
    assert verdict.declared == {"equal-events": 1}
    assert audit(lines, [_row(event)] * 2).doubled == 1
    assert audit(lines, []).lost == 1


def test_a_resend_with_another_time_is_another_event_and_declared() -> None:
    event, later = Event("d", time=5, data={"a": 1}), Event("d", time=9, data={"a": 1})
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), Sent(1, 1, time=9), Acked(2, 1)]
    assert audit(lines, [_row(event), _row(later)]).declared == {"restamped-resends": 1}
    for rows in ([event], [later], [event, later]):
        assert audit(lines, [_row(one) for one in rows]).kept
    assert audit(lines, []).lost == 1
    assert audit(lines, [_row(later), _row(later)]).doubled == 1
    assert audit(lines, [_row(event), _row(Event("d", time=7, data={"a": 1}))]).invented == 1


def test_an_event_with_neither_that_is_sent_in_two_requests_may_be_two_rows() -> None:
    event = Event("d", data={"a": 1})
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), Sent(1, 1, again=True), Sent(2, 1), Acked(3, 1)]
    assert audit(lines, [_row(event)] * 2).declared == {"resent-without-proof": 1}
    assert audit(lines, [_row(event)] * 3).doubled == 1


def test_two_gateways_may_keep_what_has_neither_twice_and_nothing_else() -> None:
    neither, known = Event("d", data={"a": 1}), Event("d", id=1, data={"a": 1})
    assert audit(_sent_and_acked(neither), [_row(neither)] * 2, gateways=2).declared == {"heard-twice-without-id": 1}
    assert audit(_sent_and_acked(known), [_row(known)] * 2, gateways=2).doubled == 1


def test_a_restored_card_has_forgotten_the_proof_of_what_was_under_way() -> None:
    event = Event("d", data={"a": 1})
    restored = Happened(1, "agent", RESTORED)
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), restored, Sent(2, 1, again=True), Acked(3, 1)]
    assert audit(lines, [_row(event)] * 2).declared == {"across-a-restored-card": 1}
    assert audit([restored, *_sent_and_acked(event)], [_row(event)] * 2).doubled == 1


def test_an_event_that_ends_twice_or_was_never_told_is_not_blamed_on_the_path() -> None:
    with pytest.raises(LedgerError, match="line 1"):
        audit([Sent(0, 1)], [])
    with pytest.raises(LedgerError, match="line 3"):
        audit([Told(0, 1, Event("d")), Acked(0, 1), GivenUp(0, 1)], [])


def _placed(event: Event, sequence: int, epoch: str = "e") -> Row:
    return replace(_row(event), epoch=epoch, sequence=sequence)


def test_a_device_whose_events_changed_places_is_caught() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines = _sent_and_acked(first, second)
    assert audit(lines, [_placed(first, 4), _placed(second, 7)]).kept
    swapped = audit(lines, [_placed(first, 7), _placed(second, 4)])
    assert (swapped.disordered, swapped.kept) == (1, False)
    assert audit(lines, [_placed(first, 7), _placed(second, 4, "another epoch")]).kept


def test_events_under_way_at_once_may_come_in_any_order() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines: list[Line] = [Told(0, 1, first), Told(0, 2, second), Sent(0, 1), Sent(0, 2), Acked(1, 2), Acked(1, 1)]
    assert audit(lines, [_placed(first, 7), _placed(second, 4)]).kept


def test_records_of_a_device_that_changed_places_in_kafka_are_caught() -> None:
    def records(*offsets: int) -> Verdict:
        with Casebook() as casebook:
            for sequence, offset in enumerate(offsets):
                record = Row("d", "reading", str(sequence), None, None, None, "e", sequence, 3, offset, "f", 0)
                casebook.add_records([record])
            return judge(casebook)

    assert records(4, 5, 9).disordered == 0
    assert records(4, 9, 5).disordered == 1


def test_a_topic_in_place_of_a_table_may_repeat_a_label() -> None:
    event = Event("d", id=1)
    with Casebook() as casebook:
        casebook.add_ledger(_sent_and_acked(event))
        casebook.add_topic_as_rows([_placed(event, 4), _placed(event, 4)])
        verdict = judge(casebook)
    assert (verdict.kept, verdict.rows, verdict.repeats) == (True, 1, 1)


class Witness:
    def fingerprint(self, event: Event) -> str | None:
        return f"name of {event.id}"

    def trace(self, fingerprint: str) -> list[str]:
        return [f"of {fingerprint}"]


def test_a_violation_has_its_whole_history(tmp_path: Path) -> None:
    moments = iter(range(NOW, NOW + 100))
    event = Event("d", id=1, data={"a": 1})
    with Ledger(tmp_path / "ledger.jsonl", lambda: next(moments)) as ledger:
        mark = ledger.tell(event)
        ledger.sent(mark)
        ledger.sent(mark, again=True)
        ledger.acked(mark)
    row = Row("d", "reading", "1", None, {"a": 1}, None, "e1", 4, 3, 17, "00ff", NOW)
    with Casebook() as casebook:
        casebook.add_ledger(read(tmp_path / "ledger.jsonl"))
        casebook.add_records([row])
        casebook.add_rows([row, row])
        verdict = with_histories(judge(casebook), casebook, tmp_path / "ledger.jsonl", [Witness()])
    text = str(verdict.violations[0])
    assert text.startswith('doubled: d reading id=1 data={"a":1} (events sent 1, acked 1, rows 2)')
    for part in (
        "told",
        "sent in a new request",
        "byte for byte",
        "acked",
        "partition 3, offset 17",
        "trace 00ff: of",
        "of name of 1",
    ):
        assert part in text
    assert text.count("in the table") == 2
    assert from_document(json.loads(json.dumps(verdict.document()))) == verdict


def test_without_a_table_nothing_is_claimed() -> None:
    with Casebook() as casebook:
        casebook.add_ledger(_sent_and_acked(Event("d", id=1)))
        verdict = judge(casebook, has_table=False)
    assert (verdict.kept, verdict.rows) == (True, None)
    assert "No table was looked at" in sentence(verdict)


def test_an_interrupted_run_has_lost_nothing_yet_but_may_have_doubled() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    with Casebook() as casebook:
        casebook.add_ledger(_sent_and_acked(first, second))
        casebook.add_rows([_row(second)] * 2)
        verdict = judge(casebook, complete=False)
    assert (verdict.lost, verdict.doubled) == (0, 1)


def test_numbers_are_equal_in_every_spelling() -> None:
    assert canonical({"b": [2.0, True], "a": {"c": 0.5}}) == canonical({"a": {"c": 0.5}, "b": [2, True]})
    assert canonical({"a": 2.5}) != canonical({"a": 2})
    assert canonical({"a": True}) != canonical({"a": 1})


def test_a_table_on_disk_is_read_as_it_is(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "device": _texts("urn:oncegate:gateway:g", TABLE[0].device, TABLE[1].device),
        "type": _texts("gateway.started", "reading", "alarm"),
        "id": _texts("00ff", "17", None),
        "boot": _texts(None, "2", None),
        "event_time": _moments(None, None, NOW + 7),
        "data": _texts(None, '{"temperature":21.50}', '{"open":true,"of":[1,{"a":"ü"}]}'),
        "epoch": _texts("e", "e", "e"),
        "sequence": Array([1, 2, 3], DataType.int64()),
        "kafka_partition": Array([0, 0, 0], DataType.int32()),
        "kafka_offset": Array([5, 6, 7], DataType.int64()),
        "fingerprint": Array([b"\x01" * 16, b"\x02" * 16, b"\x03" * 16], DataType.binary()),
        "processed_at": _moments(NOW, NOW, NOW),
    }
    write_deltalake(tmp_path, Table.from_pydict(columns))

    assert list(delta.read(tmp_path)) == [
        Row(TABLE[0].device, "reading", "17", None, {"temperature": 21.5}, "2", "e", 2, 0, 6, "02" * 16, NOW),
        replace(
            Row(TABLE[1].device, "alarm", None, NOW + 7, {"open": True, "of": [1, {"a": "ü"}]}),
            epoch="e",
            sequence=3,
            partition=0,
            offset=7,
            fingerprint="03" * 16,
            at=NOW,
        ),
    ]
    write_deltalake(tmp_path, Table.from_pydict(columns), mode="append")
    assert len(list(delta.read(tmp_path))) == 4


def _texts(*values: str | None) -> Array:
    return Array(values, DataType.string())


def _moments(*milliseconds: int | None) -> Array:
    microseconds = [None if moment is None else moment * 1000 + 999 for moment in milliseconds]
    return Array(microseconds, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert list(delta.read(tmp_path / "none")) == []
