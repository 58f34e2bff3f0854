"""Limits that are declared: counted by name, and no violations."""

from __future__ import annotations

import pytest

from contract.event import Event
from simulators.ledger import Acked, GivenUp, Happened, LedgerError, Line, Sent, Told
from simulators.oracle.casebook import RESTORED
from tests.simulators.truth import audit, row_of, sent_and_acked


def test_an_id_that_is_given_to_two_events_that_differ_makes_two_rows() -> None:
    first, second = Event("d", id=1, data={"a": 1}), Event("d", id=1, data={"a": 2})
    lines = sent_and_acked(first, second)
    assert audit(lines, [row_of(first), row_of(second)]).kept
    assert audit(lines, [row_of(second)]).lost == 1


def test_two_events_that_say_the_same_are_one_and_declared() -> None:
    event = Event("d", id=1, data={"a": 1})
    lines = sent_and_acked(event, event)
    verdict = audit(lines, [row_of(event)])
    assert verdict.kept
    assert verdict.declared == {"equal-events": 1}
    assert audit(lines, [row_of(event)] * 2).doubled == 1
    assert audit(lines, []).lost == 1


def test_a_resend_with_another_time_is_another_event_and_declared() -> None:
    event, later = Event("d", time=5, data={"a": 1}), Event("d", time=9, data={"a": 1})
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), Sent(1, 1, time=9), Acked(2, 1)]
    assert audit(lines, [row_of(event), row_of(later)]).declared == {"restamped-resends": 1}
    for rows in ([event], [later], [event, later]):
        assert audit(lines, [row_of(one) for one in rows]).kept
    assert audit(lines, []).lost == 1
    assert audit(lines, [row_of(later), row_of(later)]).doubled == 1
    assert audit(lines, [row_of(event), row_of(Event("d", time=7, data={"a": 1}))]).invented == 1


def test_an_event_with_neither_that_is_sent_in_two_requests_may_be_two_rows() -> None:
    event = Event("d", data={"a": 1})
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), Sent(1, 1, again=True), Sent(2, 1), Acked(3, 1)]
    assert audit(lines, [row_of(event)] * 2).declared == {"resent-without-proof": 1}
    assert audit(lines, [row_of(event)] * 3).doubled == 1


def test_two_gateways_may_keep_what_has_neither_twice_and_nothing_else() -> None:
    neither, known = Event("d", data={"a": 1}), Event("d", id=1, data={"a": 1})
    assert audit(sent_and_acked(neither), [row_of(neither)] * 2, gateways=2).declared == {"heard-twice-without-id": 1}
    assert audit(sent_and_acked(known), [row_of(known)] * 2, gateways=2).doubled == 1


def test_a_restored_card_has_forgotten_the_proof_of_what_was_under_way() -> None:
    event = Event("d", data={"a": 1})
    restored = Happened(1, "agent", RESTORED)
    lines: list[Line] = [Told(0, 1, event), Sent(0, 1), restored, Sent(2, 1, again=True), Acked(3, 1)]
    assert audit(lines, [row_of(event)] * 2).declared == {"across-a-restored-card": 1}
    assert audit([restored, *sent_and_acked(event)], [row_of(event)] * 2).doubled == 1


def test_an_event_that_ends_twice_or_was_never_told_is_not_blamed_on_the_path() -> None:
    with pytest.raises(LedgerError, match="line 1"):
        audit([Sent(0, 1)], [])
    with pytest.raises(LedgerError, match="line 3"):
        audit([Told(0, 1, Event("d")), Acked(0, 1), GivenUp(0, 1)], [])
