import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from contract.event import Event
from simulators.ledger import Acked, GivenUp, Ledger, LedgerError, Reported, Sent, read
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.history import with_histories
from simulators.oracle.judge import judge
from simulators.oracle.statement import canonical
from simulators.oracle.verdict import BROKEN, Scope, Verdict, from_document, sentence
from tests.simulators.oracle.judged_field import ALL, LEDGER, NOW, TABLE, audit, row_of, rows, sent_and_acked


def test_an_existing_ledger_is_kept() -> None:
    verdict = audit(LEDGER, reversed(TABLE))
    assert verdict.kept
    assert (verdict.events, verdict.acked, verdict.rows) == (ALL, ALL, ALL)
    assert (verdict.transmissions, verdict.declared) == (2 * ALL, {})
    assert verdict.violations == ()


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
        verdict = with_histories(judge(evidence), evidence, tmp_path / "ledger.jsonl")
    text = str(verdict.violations[0])
    assert text.startswith('doubled: d reading id=1 data={"a":1} (events sent 1, acked 1, rows 2)')
    for part in ("reported", "sent in a new request", "byte for byte", "acked", "partition 3, offset 17"):
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


@pytest.mark.parametrize(
    ("verdict", "kept", "said"),
    [
        (replace(GOOD, acked=0, rows=0), False, "No verdict: of 3 events none was acked"),
        (replace(GOOD, acked=0, rows=None), False, "No verdict: of 3 events none was acked"),
        (replace(GOOD, acked=0, rows=1), True, "Nothing was lost"),
        (replace(GOOD, arriving=True), False, "No verdict. Rows were still arriving"),
        (replace(GOOD, complete=False), True, "interrupted"),
        (replace(GOOD, complete=False), True, "are not judged"),
    ],
)
def test_what_is_not_judged_is_said(verdict: Verdict, kept: bool, said: str) -> None:
    assert (verdict.kept, said in sentence(verdict)) == (kept, True)
