from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from contract.event import Event
from simulators.ledger import Acked, GivenUp, Ledger, Line, Reported, Sent, read
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.statement import canonical
from simulators.oracle.verdict import Scope, from_document, sentence
from tests.simulators.oracle.judged_field import ALL, LEDGER, NOW, TABLE, audit, row_of, rows, sent_and_acked


def test_an_existing_ledger_is_kept() -> None:
    verdict = audit(LEDGER, reversed(TABLE))
    assert verdict.kept
    assert (verdict.events, verdict.acked, verdict.rows) == (ALL, ALL, ALL)
    assert (verdict.transmissions, verdict.declared) == (2 * ALL, {})
    assert verdict.violations == ()


def test_an_unacked_event_may_be_there_once_or_not_at_all() -> None:
    event = Event("d", id=1, data={"a": 1})
    sent: list[Line] = [Reported(0, 1, event), Sent(0, 1), GivenUp(0, 1)]
    assert audit(sent, []).faults == {}
    assert audit(sent, [row_of(event)]).faults == {}
    assert audit(sent, [row_of(event)] * 2).doubled == 1


def test_unacked_twins_with_neither_are_counted() -> None:
    event = Event("d", data={"a": 1})
    lines: list[Line] = [Reported(0, 1, event), Reported(0, 2, event), Sent(0, 1), Sent(0, 2), Acked(0, 2)]
    twins = rows(event, event, event)
    verdicts = [audit(lines, twins[:count]) for count in range(4)]
    assert [(one.lost, one.doubled) for one in verdicts] == [(1, 0), (0, 0), (0, 0), (0, 1)]


def test_an_ack_on_the_very_line_before_the_next_transmission_decides() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines: list[Line] = [
        Reported(0, 1, first),
        Reported(0, 2, second),
        Sent(0, 1),
        Acked(1, 1),
        Sent(1, 2),
        Acked(2, 2),
    ]
    assert audit(lines, rows(first, second)).kept
    assert audit(lines, rows(second, first)).disordered == 1


def test_of_several_later_events_the_one_that_was_acked_first_decides() -> None:
    a, b, c = (Event("d", id=number) for number in range(3))
    reported: list[Line] = [
        Reported(0, 1, a),
        Reported(0, 2, b),
        Reported(0, 3, c),
        Sent(0, 2),
        Acked(1, 2),
        Sent(1, 1),
        Sent(1, 3),
    ]
    lines: list[Line] = [*reported, Acked(2, 3), Acked(2, 1)]
    assert audit(lines, rows(b, c, a)).kept
    assert audit(lines, rows(a, b, c)).disordered == 1


def test_events_under_way_at_once_may_come_in_any_order() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines: list[Line] = [
        Reported(0, 1, first),
        Reported(0, 2, second),
        Sent(0, 1),
        Sent(0, 2),
        Acked(1, 2),
        Acked(1, 1),
    ]
    assert audit(lines, [row_of(first, 7), row_of(second, 4)]).kept


def test_a_record_that_is_repeated_late_is_where_it_was_first() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    topic = [*rows(first, second), row_of(first)._replace(offset=9)]
    verdict = audit(sent_and_acked(first, second), topic[:2], topic)
    assert (verdict.kept, verdict.records, verdict.repeats) == (True, 3, 1)


def test_a_topic_in_place_of_a_table_may_repeat_a_label() -> None:
    event = Event("d", id=1)
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(sent_and_acked(event))
        evidence.add_topic_as_rows([row_of(event, 4), row_of(event, 4)._replace(offset=9)])
        verdict = judge(evidence)
    assert (verdict.kept, verdict.rows, verdict.repeats) == (True, 1, 1)


class TracingGateway:
    def fingerprint(self, event: Event) -> str | None:
        return f"name of {event.id}"

    def trace(self, fingerprint: str) -> list[str]:
        return [f"of {fingerprint}"]


def test_a_violation_has_its_whole_history(tmp_path: Path) -> None:
    moments = iter(range(NOW, NOW + 100))
    event = Event("d", id=1, data={"a": 1})
    with Ledger(tmp_path / "ledger.jsonl", lambda: next(moments)) as ledger:
        mark = ledger.reported(event)
        ledger.sent(mark)
        ledger.sent(mark, again=True)
        ledger.acked(mark)
    row = row_of(event, 4)._replace(partition=3, offset=17, fingerprint="00ff")
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(read(tmp_path / "ledger.jsonl"))
        evidence.add_records([row])
        evidence.add_rows([row, row])
        verdict = with_histories(judge(evidence), evidence, tmp_path / "ledger.jsonl", [TracingGateway()])
    text = str(verdict.violations[0])
    assert text.startswith('doubled: d reading id=1 data={"a":1} (events sent 1, acked 1, rows 2)')
    for part in (
        "reported",
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
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(sent_and_acked(Event("d", id=1)))
        verdict = judge(evidence, Scope(has_table=False))
    assert (verdict.faults, verdict.kept, verdict.rows) == ({}, False, None)
    assert "No table was read" in sentence(verdict)


INTERRUPTED = Scope(complete=False, settled=False)


def test_an_interrupted_run_may_have_events_under_way_but_none_that_a_later_one_has_overtaken() -> None:
    first, second, third = (Event("d", id=number) for number in range(3))
    lines = sent_and_acked(first, second, third)
    stored = rows(first, second, third)
    assert audit(lines, stored[:1], scope=INTERRUPTED).faults == {}
    assert audit(lines, [stored[0], stored[2]], scope=INTERRUPTED).faults == {"lost": 1}
    assert audit(lines, [*stored[:1], *stored[:1]], scope=INTERRUPTED).faults == {"doubled": 1}
    twin = Event("d", data={"a": 1})
    assert audit(sent_and_acked(twin, first, twin), rows(twin), scope=INTERRUPTED).faults == {}  # it may be the first
    two = replace(INTERRUPTED, gateways=2)
    assert audit(lines, [stored[0], stored[2]], scope=two).faults == {}  # on its way from the other gateway


def test_an_interrupted_run_whose_gateway_has_all_its_receipts_is_judged_for_what_is_lost() -> None:
    lines = sent_and_acked(Event("d", id=1), Event("d", id=2))
    assert audit(lines, [], scope=replace(INTERRUPTED, settled=True)).faults == {"lost": 2}


def test_an_interrupted_run_has_not_waited_for_acks() -> None:
    lines = [*sent_and_acked(Event("d", id=1)), Reported(0, 2, Event("d", id=2)), Sent(0, 2)]
    stored = rows(Event("d", id=1))
    assert audit(lines, stored, scope=INTERRUPTED).faults == {}
    assert audit(lines, stored).faults == {"unacked": 1}


def test_numbers_are_equal_in_every_spelling() -> None:
    assert canonical({"b": [2.0, True], "a": {"c": 0.5}}) == canonical({"a": {"c": 0.5}, "b": [2, True]})
    assert canonical({"a": 2.5}) != canonical({"a": 2})
    assert canonical({"a": True}) != canonical({"a": 1})
