"""Declared limits are counted by name and are no violations."""

from __future__ import annotations

import pytest

from contract.event import Event, Value
from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, Happened, LedgerError, Line, Refused, Reported, Sent
from simulators.oracle.evidence_database import RESTORED
from simulators.oracle.verdict import Scope
from tests.simulators.oracle.judged_field import audit, row_of, rows, sent_and_acked


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
    lines: list[Line] = [
        Reported(0, 1, twin),
        Sent(0, 1),
        Sent(1, 1),
        Acked(2, 1),
        Reported(3, 2, twin),
        Sent(3, 2),
        Acked(4, 2),
    ]
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
