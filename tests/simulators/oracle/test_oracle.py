from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from contract.event import Event, Value
from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, Happened, Ledger, LedgerError, Line, Refused, Reported, Sent, read
from simulators.oracle.evidence_database import RESTORED, EvidenceDatabase
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.statement import canonical
from simulators.oracle.verdict import BROKEN, Scope, Verdict, from_document, sentence
from tests.simulators.oracle.judged_field import ALL, LEDGER, NOW, TABLE, audit, row_of, rows, sent_and_acked


def reported(*events: Event) -> list[Line]:
    return [Reported(0, mark, event) for mark, event in enumerate(events, start=1)]


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
    lines = [*reported(event, event), Sent(0, 1), Sent(0, 2), Acked(0, 2)]
    twins = rows(event, event, event)
    verdicts = [audit(lines, twins[:count]) for count in range(4)]
    assert [(one.lost, one.doubled) for one in verdicts] == [(1, 0), (0, 0), (0, 0), (0, 1)]


def test_an_ack_on_the_very_line_before_the_next_transmission_decides() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines = [*reported(first, second), Sent(0, 1), Acked(1, 1), Sent(1, 2), Acked(2, 2)]
    assert audit(lines, rows(first, second)).kept
    assert audit(lines, rows(second, first)).disordered == 1


def test_of_several_later_events_the_one_that_was_acked_first_decides() -> None:
    a, b, c = (Event("d", id=number) for number in range(3))
    lines = [*reported(a, b, c), Sent(0, 2), Acked(1, 2), Sent(1, 1), Sent(1, 3), Acked(2, 3), Acked(2, 1)]
    assert audit(lines, rows(b, c, a)).kept
    assert audit(lines, rows(a, b, c)).disordered == 1


def test_events_under_way_at_once_may_come_in_any_order() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    lines = [*reported(first, second), Sent(0, 1), Sent(0, 2), Acked(1, 2), Acked(1, 1)]
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


def test_an_id_that_is_given_to_two_events_that_differ_makes_two_rows() -> None:
    first, second = Event("d", id=1, data={"a": 1}), Event("d", id=1, data={"a": 2})
    lines = sent_and_acked(first, second)
    assert audit(lines, rows(first, second)).kept
    assert audit(lines, [row_of(second)]).lost == 1


def test_two_events_that_say_the_same_are_one_and_declared() -> None:
    event = Event("d", id=1, data={"a": 1})
    lines = sent_and_acked(event, event)
    verdict = audit(lines, [row_of(event)])
    assert verdict.kept
    assert verdict.declared == {"equal-events": 1}
    assert audit(lines, rows(event, event)).doubled == 1
    assert audit(lines, []).lost == 1


def test_a_resend_with_another_time_is_another_event_and_declared() -> None:
    event, later = Event("d", time=5, data={"a": 1}), Event("d", time=9, data={"a": 1})
    lines: list[Line] = [Reported(0, 1, event), Sent(0, 1), Sent(1, 1, time=9), Acked(2, 1)]
    assert audit(lines, rows(event, later)).declared == {"restamped-resends": 1}
    for stored in ([event], [later], [event, later]):
        assert audit(lines, rows(*stored)).kept
    assert audit(lines, []).lost == 1
    assert audit(lines, rows(later, later)).doubled == 1
    assert audit(lines, rows(event, Event("d", time=7, data={"a": 1}))).invented == 1


def test_an_event_with_neither_that_is_sent_in_two_requests_may_be_two_rows() -> None:
    event = Event("d", data={"a": 1})
    lines: list[Line] = [Reported(0, 1, event), Sent(0, 1), Sent(1, 1, again=True), Sent(2, 1), Acked(3, 1)]
    assert audit(lines, rows(event, event)).declared == {"resent-without-proof": 1}
    assert audit(lines, rows(event, event, event)).doubled == 1


def test_two_gateways_may_keep_what_has_neither_twice_and_nothing_else() -> None:
    neither, known = Event("d", data={"a": 1}), Event("d", id=1, data={"a": 1})
    heard, known_twice = ([row_of(event), row_of(event, 1, "f", "gw2")] for event in (neither, known))
    assert audit(sent_and_acked(neither), heard, scope=Scope(gateways=2)).declared == {"received-twice-without-id": 1}
    assert audit(sent_and_acked(known), known_twice, scope=Scope(gateways=2)).doubled == 1


def test_a_restored_card_has_forgotten_the_proof_of_what_was_under_way() -> None:
    event = Event("d", data={"a": 1})
    restored = Happened(1, "agent", RESTORED)
    lines: list[Line] = [Reported(0, 1, event), Sent(0, 1), restored, Sent(2, 1, again=True), Acked(3, 1)]
    assert audit(lines, rows(event, event)).declared == {"across-a-restored-card": 1}
    assert audit([restored, *sent_and_acked(event)], rows(event, event)).doubled == 1


def test_a_second_label_is_no_fault_where_the_first_was_forgotten_with_a_card() -> None:
    event = Event("d", id=1)
    lines: list[Line] = [Reported(0, 1, event), Sent(0, 1), Happened(1, "agent", RESTORED), Sent(2, 1), Acked(3, 1)]
    topic = [row_of(event), row_of(event, 1, "f")._replace(offset=2)]
    assert audit(lines, topic[:1], topic).kept


def test_the_resend_of_what_was_declared_as_given_up_may_have_another_label() -> None:
    event = Event("d", id=1)
    data: dict[str, Value] = {"labels": [["e", 1, 1]], "count": 1}
    gap = Row("urn:oncegate:gateway:g", "gateway.gap", "x", None, data, None, "e", 9, 0, 9)
    resent = row_of(event, 2)
    assert audit(sent_and_acked(event), [resent], [resent, gap]).kept


def test_each_of_two_gateways_may_label_an_event() -> None:
    event = Event("d", id=1)
    topic = [row_of(event), row_of(event, 1, "f", "gw2")._replace(offset=2)]
    assert audit(sent_and_acked(event), topic[:1], topic, Scope(gateways=2)).kept
    unnamed = [record._replace(gateway=None) for record in topic]
    assert audit(sent_and_acked(event), unnamed[:1], unnamed, Scope(gateways=2)).kept
    assert audit(sent_and_acked(event), topic[:1], topic, Scope(gateways=1)).kept  # two names are two gateways
    assert audit(sent_and_acked(event), unnamed[:1], unnamed).mislabelled == 1


def test_what_two_gateways_heard_may_be_late_at_the_one_that_did_not_ack() -> None:
    first, second = Event("d", id=1), Event("d", id=2)
    at_one = rows(first, second)
    late = [row_of(second, 1, "f", "gw2"), row_of(first, 2, "f", "gw2")]
    topic = [*at_one, *(record._replace(offset=2 + place) for place, record in enumerate(late, start=1))]
    assert audit(sent_and_acked(first, second), at_one, topic, Scope(gateways=2)).kept


def test_a_refused_pack_may_hold_what_an_earlier_one_has_brought() -> None:
    event = Event("d", id=1)
    lines: list[Line] = [Reported(0, 1, event), Sent(0, 1), Sent(1, 1), Refused(2, 1, "4.13")]
    assert audit(lines, [row_of(event)]).faults == {}
    refused: list[Line] = [Reported(0, 1, event), Sent(0, 1), Refused(2, 1, "4.03")]
    assert audit(refused, [row_of(event)]).faults == {"invented": 1}
    assert audit(refused, [row_of(event)], scope=Scope(gateways=2)).faults == {}  # the other may have it


def test_a_second_request_for_one_with_neither_may_be_labelled_after_the_ack() -> None:
    twin, other = Event("d", data={"a": 1}), Event("d", data={"a": 2})
    twice: list[Line] = [Reported(0, 1, twin), Sent(0, 1), Sent(1, 1), Acked(2, 1)]
    lines: list[Line] = [*twice, Reported(3, 2, other), Sent(3, 2), Acked(4, 2)]
    assert audit(lines, rows(twin, other, twin)).kept


def test_a_restamped_resend_that_says_what_another_event_says_is_one_with_it_and_declared() -> None:
    event, later = Event("d", time=5, data={"a": 1}), Event("d", time=9, data={"a": 1})
    restamped: list[Line] = [Reported(0, 1, event), Sent(0, 1), Sent(1, 1, time=9), Acked(2, 1)]
    verdict = audit([*restamped, Reported(3, 2, later), Sent(3, 2), Acked(4, 2)], [row_of(later)])
    assert (verdict.kept, verdict.declared) == (True, {"equal-events": 1})


def test_a_second_request_pays_for_an_equal_events_copy_since_nobody_can_tell_them_apart() -> None:
    twin = Event("d", data={"a": 1})
    lines = [*reported(twin, twin), Sent(0, 1), Sent(1, 1), Acked(2, 1), Sent(3, 2), Acked(4, 2)]
    assert audit(lines, rows(twin, twin, twin)).declared == {"resent-without-proof": 1}
    assert audit(lines, rows(twin, twin, twin, twin)).faults == {"doubled": 1}


@pytest.mark.parametrize(
    ("said", "stored"),
    [({"x": -0.0}, {"x": 0}), ({"x": None, "y": 1}, {"y": 1}), ({"x": 21.0}, {"x": 21})],
)
def test_what_the_contract_holds_equal_is_equal(said: dict[str, Value], stored: dict[str, Value]) -> None:
    assert audit(sent_and_acked(Event("d", id=1, data=said)), [row_of(Event("d", id=1, data=stored))]).kept


def test_an_event_that_ends_twice_or_was_never_told_is_not_blamed_on_the_path() -> None:
    with pytest.raises(LedgerError, match="line 1"):
        audit([Sent(0, 1)], [])
    with pytest.raises(LedgerError, match="line 3"):
        audit([Reported(0, 1, Event("d")), Acked(0, 1), GivenUp(0, 1)], [])


GOOD = Verdict(events=3, acked=3, refused=0, given_up=0, transmissions=5, rows=3)
FIGURES = {"events", "acked", "refused", "given_up", "transmissions", "rows", "records", "repeats", "malformed"}
"""Counts that are never a fault."""
NO_COUNTS = {"declared", "violations", "complete", "arriving", "cut", "unknown", "of_topic"}


@pytest.mark.guarantee(0)
def test_every_count_is_a_figure_or_must_be_nought() -> None:
    assert [field.name for field in fields(Verdict) if field.name not in FIGURES | NO_COUNTS] == list(BROKEN)


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_breaks_the_promise(name: str) -> None:
    counts: dict[str, Any] = {name: 2}
    verdict = replace(GOOD, **counts)
    assert verdict.faults == {name: 2}
    assert not verdict.kept
    assert sentence(verdict) == f"The guarantees were violated: 2 {name}."


def test_a_run_that_acked_and_stored_nothing_is_no_verdict() -> None:
    for count in (0, None):
        verdict = replace(GOOD, acked=0, rows=count)
        assert not verdict.kept
        assert "No verdict: of 3 events none was acked" in sentence(verdict)
    assert replace(GOOD, acked=0, rows=1).kept


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (replace(GOOD, arriving=True, unknown=2), "judge again later"),
        (replace(GOOD, unknown=2), "--final"),
    ],
    ids=["judged too soon", "may still be in transit"],
)
def test_what_is_not_there_yet_is_no_verdict(verdict: Verdict, said: str) -> None:
    assert not verdict.kept
    assert said in sentence(verdict)
    assert "2 acked events are not there" in sentence(verdict)
    assert "Nothing was lost" not in sentence(verdict)


def test_an_interrupted_run_says_what_is_not_judged() -> None:
    said = sentence(replace(GOOD, complete=False))
    assert "interrupted" in said
    assert "not judged" in said
