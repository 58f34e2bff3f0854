"""Histories with one fault each, which the oracle names, and unusual ones without a fault."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

from contract.event import Event, Value
from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, Happened, Line, Refused, Reported, Sent
from simulators.oracle.evidence_database import AHEAD, RESTORED
from simulators.oracle.verdict import Scope
from tests.simulators.oracle.judged_field import NOW, audit, row_of, rows, sent_and_acked
from tests.simulators.oracle.true_histories import Run, true_histories

DEVICE = "urn:dev:1"
A, B, C, D = EVENTS = [Event(DEVICE, id=number, data={"t": number}) for number in range(4)]
TWIN = Event(DEVICE, data={"t": 1})
FIVE, NINE = (Event(DEVICE, time=time, data={"a": 1}) for time in (5, 9))
LINES = sent_and_acked(*EVENTS)
TOPIC = rows(*EVENTS)
TWO = Scope(gateways=2)
ONE_CLOCK = Scope(one_clock=True)
RESTORED_ONCE: Line = Happened(0, "agent", RESTORED)
GAP = Row("urn:oncegate:gateway:g", "gateway.gap", "x", None, {"labels": [["e", 2, 3]], "count": 2}, None, "e", 9, 0, 9)


class History(NamedTuple):
    """A run with what is to be named: its fault; or, where it has none, what is declared of it."""

    named: str
    lines: Sequence[Line]
    table: Sequence[Row]
    topic: Sequence[Row] | None = None
    scope: Scope = Scope()


def _both(fault: str, lines: Sequence[Line], topic: Sequence[Row], scope: Scope = Scope()) -> History:  # noqa: B008
    """Return a history whose table equals the topic."""
    return History(fault, lines, topic, topic, scope)


def _single(event: Event, *more: Line) -> list[Line]:
    return [Reported(0, 1, event), Sent(0, 1), *more]


def _reported(*events: Event) -> list[Line]:
    return [Reported(0, mark, event) for mark, event in enumerate(events, start=1)]


TWICE_REQUESTED = _single(TWIN, Sent(1, 1, again=True), Sent(1, 1), Acked(2, 1))
RESTAMPED = _single(FIVE, Sent(1, 1, time=9), Acked(2, 1))
SWAPPED = [record._replace(sequence=at, offset=at) for at, record in zip((4, 3, 2, 1), TOPIC, strict=True)]
SPREAD = [record._replace(partition=number) for number, record in enumerate(TOPIC)]
RELABELLED = TOPIC[0]._replace(sequence=77, offset=50)
SECOND_EPOCH_FIRST = [
    *(row_of(event, place, "e")._replace(offset=10 + place) for place, event in enumerate((A, B), start=1)),
    *(row_of(event, place, "f")._replace(offset=place) for place, event in enumerate((C, D), start=1)),
]
LABEL: dict[str, Any] = {"sequence": 9_000, "epoch": "other", "offset": 9_000}
IDENTITY: dict[str, Any] = {"device": "urn:dev:9", "type": "alarm", "boot": 3}
OTHER_ROWS = [(name, [TOPIC[0]._replace(**{name: value}), *TOPIC[1:]]) for name, value in LABEL.items()]
OTHER_EVENTS = [(name, [TOPIC[0]._replace(**{name: value}), *TOPIC[1:]]) for name, value in IDENTITY.items()]
REPEAT = TOPIC[0]._replace(offset=50)
EXCHANGED = [
    TOPIC[1]._replace(epoch=TOPIC[0].epoch, sequence=TOPIC[0].sequence, offset=TOPIC[0].offset),
    TOPIC[0]._replace(epoch=TOPIC[1].epoch, sequence=TOPIC[1].sequence, offset=TOPIC[1].offset),
]


def _sent_as(*events: Event) -> tuple[list[Line], list[Row]]:
    return sent_and_acked(*events), rows(*events)


def _stored_as(said: dict[str, Value], stored: dict[str, Value]) -> tuple[list[Line], list[Row]]:
    return sent_and_acked(Event(DEVICE, id=1, data=said)), rows(Event(DEVICE, id=1, data=stored))


ACKED_BETWEEN = [*_reported(A, B), Sent(0, 1), Acked(1, 1), Sent(1, 2), Acked(2, 2)]
B_ACKED_FIRST = [*_reported(A, B, C), Sent(0, 2), Acked(1, 2), Sent(1, 1), Sent(1, 3), Acked(2, 3), Acked(2, 1)]
ONE_TWIN_ACKED = [*_reported(TWIN, TWIN), Sent(0, 1), Sent(0, 2), Acked(0, 2), GivenUp(0, 1)]
ONE_TWIN_REQUESTED_TWICE = [*_reported(TWIN, TWIN), Sent(0, 1), Sent(1, 1), Acked(2, 1), Sent(3, 2), Acked(4, 2)]
RESTORED_IN_TRANSIT = _single(TWIN, RESTORED_ONCE, Sent(2, 1, again=True), Acked(3, 1))
IN_ANOTHER_EPOCH = row_of(A, 1, "f")._replace(offset=2)
LABELLED_BY_TWO = [TOPIC[0], row_of(A, 1, "f", "gw2")._replace(offset=2)]
UNNAMED_GATEWAYS = [record._replace(gateway=None) for record in LABELLED_BY_TWO]
LATE_AT_THE_OTHER = [row_of(B, 1, "f", "gw2")._replace(offset=3), row_of(A, 2, "f", "gw2")._replace(offset=4)]
ID, ID_AS_TEXT = Event(DEVICE, id=1, data={"y": 1}), Event(DEVICE, id="1", data={"y": 1})

FALSE = {
    "sequences are swapped, and the topic was not read": History("disordered", LINES, SWAPPED),
    "a device has no partition of its own": _both("disordered", LINES, SPREAD),
    "rows have the fingerprint of another": History(
        "mislabelled", LINES, [row._replace(fingerprint="ff") for row in TOPIC], TOPIC
    ),
    "a row has another gateway than its record": History(
        "mislabelled", LINES, [row._replace(gateway="gw2") for row in TOPIC], TOPIC
    ),
    "rows have no label": History(
        "mislabelled", LINES, [row._replace(epoch=None, sequence=None) for row in TOPIC], TOPIC
    ),
    "rows have no label, and the topic was not read": History(
        "mislabelled", LINES, [row._replace(epoch=None, sequence=None) for row in TOPIC]
    ),
    "an event has two labels long after a restored card": History(
        "mislabelled", [RESTORED_ONCE, *LINES], TOPIC, [*TOPIC, RELABELLED]
    ),
    "an event has two labels in one epoch, though it was in transit at a restore": History(
        "mislabelled", _single(A, RESTORED_ONCE, Acked(2, 1)), TOPIC[:1], [TOPIC[0], RELABELLED]
    ),
    "an event has two labels, though it was sent only after the restore": History(
        "mislabelled",
        [Reported(0, 1, A), RESTORED_ONCE, Sent(1, 1), Acked(2, 1)],
        TOPIC[:1],
        [TOPIC[0], IN_ANOTHER_EPOCH],
    ),
    "an event has three labels, though one restore explains but two": History(
        "mislabelled",
        _single(A, RESTORED_ONCE, Acked(2, 1)),
        TOPIC[:1],
        [row_of(A, number, epoch)._replace(offset=number) for number, epoch in enumerate("efg", start=1)],
    ),
    "an event has two labels of one of two gateways": History("mislabelled", LINES, TOPIC, [*TOPIC, RELABELLED], TWO),
    "sequences of one of two gateways are swapped": _both("disordered", LINES, SWAPPED, TWO),
    "a refused event with neither is in the table": _both("invented", _single(TWIN, Refused(3, 1, "4.00")), rows(TWIN)),
    "an event is acked that was never sent": _both("invented", [Reported(0, 1, A), Acked(1, 1)], TOPIC[:1]),
    "a record is older than the event": _both(
        "invented", [Reported(NOW, 1, A), Sent(NOW, 1), Acked(NOW, 1)], [TOPIC[0]._replace(at=NOW - 5_000)], ONE_CLOCK
    ),
    "a row is older than its record": History(
        "invented", LINES, [TOPIC[0]._replace(at=-(10**9)), *TOPIC[1:]], TOPIC, ONE_CLOCK
    ),
    "equal readings are merged": _both("lost", sent_and_acked(TWIN, TWIN), rows(TWIN)),
    "an event with neither has more rows than requests": _both("doubled", TWICE_REQUESTED, rows(TWIN, TWIN, TWIN)),
    "a restamped event is lost": _both("lost", RESTAMPED, []),
    "a restamped event's data is changed": _both("changed", RESTAMPED, [rows(FIVE)[0]._replace(data={"a": 2})]),
    "an event is overwritten by another of its id": _both(
        "lost", sent_and_acked(A, replace(A, data={"t": 7})), rows(replace(A, data={"t": 7}))
    ),
    "receipts are ahead of the table": _both("premature", [Happened(0, "job", AHEAD + "3"), *LINES], TOPIC),
    "a gap is declared for events that are in the topic": History("misdeclared", LINES, TOPIC, [*TOPIC, GAP]),
    "an interrupted run has lost one of two twins and has the event after them": _both(
        "lost", sent_and_acked(TWIN, TWIN, A), [row_of(TWIN, 1), row_of(A, 3)], Scope(complete=False, settled=False)
    ),
    "a large integer is stored as a double": _both(
        "changed",
        sent_and_acked(Event(DEVICE, id=1, data={"x": 2**53 + 1})),
        rows(Event(DEVICE, id=1, data={"x": float(2**53)})),
    ),
    "an integer id becomes a text": _both("changed", sent_and_acked(ID), rows(ID_AS_TEXT)),
    "a text id becomes an integer": _both("changed", sent_and_acked(ID_AS_TEXT), rows(ID)),
    "of an integer id and a text id of the same digits one is lost": _both(
        "lost", sent_and_acked(ID, ID_AS_TEXT), rows(ID)
    ),
    "of an integer boot count and a text one is lost, and the topic was not read": History(
        "lost", sent_and_acked(replace(ID, boot=1), replace(ID, boot="1")), rows(replace(ID, boot=1))
    ),
    "the id None is taken for no id": _both(
        "invented",
        sent_and_acked(Event(DEVICE, id="None", time=1, data={"y": 1})),
        rows(Event(DEVICE, time=1, data={"y": 1})),
    ),
    "no data becomes empty data": _both(
        "changed", sent_and_acked(Event(DEVICE, id=1)), rows(Event(DEVICE, id=1, data={}))
    ),
    "the second epoch precedes the first": _both("disordered", LINES, SECOND_EPOCH_FIRST),
    "of equal readings one is lost, and the other's record written twice": History(
        "doubled", sent_and_acked(TWIN, TWIN), [rows(TWIN)[0]] * 2, rows(TWIN, TWIN)
    ),
    "a record is written twice, and the card was restored meanwhile": History(
        "doubled", _single(TWIN, RESTORED_ONCE, Acked(3, 1)), [rows(TWIN)[0]] * 2, rows(TWIN)
    ),
    "an event that two gateways received is three times in the table": History(
        "doubled", sent_and_acked(TWIN), [row_of(TWIN, 1), row_of(TWIN, 2), row_of(TWIN, 1, "f", "gw2")], scope=TWO
    ),
    "one gateway of two has doubled what the other did not receive": History(
        "doubled", sent_and_acked(TWIN), rows(TWIN, TWIN), scope=TWO
    ),
    "a restamped event has two rows of one label": History(
        "doubled", RESTAMPED, [row_of(FIVE), row_of(NINE)], rows(FIVE)
    ),
    **{
        f"a row has another {name} than its record": History("mislabelled", LINES, table, TOPIC)
        for name, table in OTHER_ROWS
    },
    **{
        f"an event has another {name} than its sensor has sent": _both("invented", LINES, topic)
        for name, topic in OTHER_EVENTS
    },
    "the job has lost a record": History("lost", LINES, TOPIC[1:], TOPIC),
    "the job has written a record and its repeat": History("doubled", LINES, [*TOPIC, REPEAT], [*TOPIC, REPEAT]),
    "a row was never in the topic": History("doubled", LINES, [*TOPIC, RELABELLED], TOPIC),
    "a row has other data than its record": History(
        "changed", LINES, [TOPIC[0]._replace(data={"t": -1}), *TOPIC[1:]], TOPIC
    ),
    "the record of a row is gone": History("invented", LINES, TOPIC, TOPIC[1:]),
    "two rows have exchanged their labels": History("mislabelled", LINES, [*EXCHANGED, *TOPIC[2:]], TOPIC),
    "two events have one label": _both(
        "mislabelled", LINES, [TOPIC[0], TOPIC[1]._replace(epoch="e", sequence=1), *TOPIC[2:]]
    ),
    "offsets are swapped": _both(
        "disordered", LINES, [TOPIC[0]._replace(offset=2), TOPIC[1]._replace(offset=1), *TOPIC[2:]]
    ),
    "a gateway acks nobody and stores nothing": _both(
        "unacked", [line for line in LINES if not isinstance(line, Acked)], []
    ),
    "an unacked event is there twice": History("doubled", _single(A, GivenUp(0, 1)), [TOPIC[0]] * 2),
    "of twins the acked one is lost": History("lost", ONE_TWIN_ACKED, []),
    "of twins one is there twice": History("doubled", ONE_TWIN_ACKED, rows(TWIN, TWIN, TWIN)),
    "an event precedes one that was acked on the line before it was sent": History(
        "disordered", ACKED_BETWEEN, rows(B, A)
    ),
    "of several later events the one that was acked first is late": History("disordered", B_ACKED_FIRST, rows(A, B, C)),
    "two events that say the same are two rows": History("doubled", sent_and_acked(A, A), rows(A, A)),
    "two events that say the same are lost": History("lost", sent_and_acked(A, A), []),
    "a restamped event has two rows of its second time": History("doubled", RESTAMPED, rows(NINE, NINE)),
    "a restamped event has a third time": History("invented", RESTAMPED, rows(FIVE, replace(FIVE, time=7))),
    "each of two gateways has a row of an event with an id": History(
        "doubled", sent_and_acked(A), LABELLED_BY_TWO, scope=TWO
    ),
    "an event that was sent after a restore is there twice": History(
        "doubled", [RESTORED_ONCE, *sent_and_acked(TWIN)], rows(TWIN, TWIN)
    ),
    "an event has two labels, and the gateways have no names": History(
        "mislabelled", LINES[:3], UNNAMED_GATEWAYS[:1], UNNAMED_GATEWAYS
    ),
    "an event whose only request was refused is in the table": History(
        "invented", _single(A, Refused(2, 1, "4.03")), TOPIC[:1]
    ),
    "of equal events of which one was requested twice one is there twice": History(
        "doubled", ONE_TWIN_REQUESTED_TWICE, rows(TWIN, TWIN, TWIN, TWIN)
    ),
}

TRUE = {
    "an unacked event is not there": History("", _single(A, GivenUp(0, 1)), []),
    "an unacked event is there": History("", _single(A, GivenUp(0, 1)), TOPIC[:1]),
    "of twins the acked one is there": History("", ONE_TWIN_ACKED, rows(TWIN)),
    "of twins both are there": History("", ONE_TWIN_ACKED, rows(TWIN, TWIN)),
    "the first was acked on the line before the second was sent": History("", ACKED_BETWEEN, rows(A, B)),
    "of several later events the one that was acked first is first": History("", B_ACKED_FIRST, rows(B, C, A)),
    "events in transit at once arrive in another order": History(
        "", [*_reported(A, B), Sent(0, 1), Sent(0, 2), Acked(1, 2), Acked(1, 1)], [row_of(A, 7), row_of(B, 4)]
    ),
    "an id is given to two events that differ": History("", *_sent_as(A, replace(A, data={"t": 7}))),
    "two events that say the same are one row": History("equal-events", sent_and_acked(A, A), TOPIC[:1]),
    "a restamped event has its first time": History("", RESTAMPED, rows(FIVE)),
    "a restamped event has its second time": History("", RESTAMPED, rows(NINE)),
    "a restamped event has both times": History("restamped-resends", RESTAMPED, rows(FIVE, NINE)),
    "a restamped event says what another one says": History(
        "equal-events", [*RESTAMPED, Reported(3, 2, NINE), Sent(3, 2), Acked(4, 2)], rows(NINE)
    ),
    "an event with neither has as many rows as requests": History(
        "resent-without-proof", TWICE_REQUESTED, rows(TWIN, TWIN)
    ),
    "a second request of one with neither is labelled after the ack": History(
        "resent-without-proof", [*TWICE_REQUESTED, Reported(3, 2, A), Sent(3, 2), Acked(4, 2)], rows(TWIN, A, TWIN)
    ),
    "a second request may be that of an equal event": History(
        "resent-without-proof", ONE_TWIN_REQUESTED_TWICE, rows(TWIN, TWIN, TWIN)
    ),
    "two gateways have received what has neither": History(
        "received-twice-without-id", sent_and_acked(TWIN), [row_of(TWIN), row_of(TWIN, 1, "f", "gw2")], scope=TWO
    ),
    "a restored card has forgotten the proof of what was in transit": History(
        "across-a-restored-card", RESTORED_IN_TRANSIT, rows(TWIN, TWIN)
    ),
    "a restored card has forgotten the first label": History(
        "", _single(A, RESTORED_ONCE, Sent(2, 1), Acked(3, 1)), TOPIC[:1], [TOPIC[0], IN_ANOTHER_EPOCH]
    ),
    "what was declared as given up is sent again under another label": History(
        "", LINES[:3], [row_of(A, 2)], [row_of(A, 2), GAP._replace(data={"labels": [["e", 1, 1]], "count": 1})]
    ),
    "each of two gateways labels an event": History("", LINES[:3], TOPIC[:1], LABELLED_BY_TWO, TWO),
    "each of two gateways without names labels an event": History(
        "", LINES[:3], UNNAMED_GATEWAYS[:1], UNNAMED_GATEWAYS, TWO
    ),
    "two names are two gateways": History("", LINES[:3], TOPIC[:1], LABELLED_BY_TWO),
    "the gateway that did not ack has the events late": History(
        "", LINES[:6], TOPIC[:2], [*TOPIC[:2], *LATE_AT_THE_OTHER], TWO
    ),
    "a refused pack has what an earlier one has brought": History(
        "", _single(A, Sent(1, 1), Refused(2, 1, "4.13")), TOPIC[:1]
    ),
    "what one gateway refused the other has": History("", _single(A, Refused(2, 1, "4.03")), TOPIC[:1], scope=TWO),
    "minus zero is zero": History("", *_stored_as({"x": -0.0}, {"x": 0})),
    "null is nothing": History("", *_stored_as({"x": None, "y": 1}, {"y": 1})),
    "a whole double is an integer": History("", *_stored_as({"x": 21.0}, {"x": 21})),
}


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("name", FALSE)
def test_a_false_history_is_named(name: str) -> None:
    history = FALSE[name]
    verdict = audit(history.lines, history.table, history.topic, history.scope)
    assert history.named in verdict.faults
    assert not verdict.kept
    assert history.named in ("unacked", "premature") or history.named in {one.what for one in verdict.violations}


@pytest.mark.parametrize("name", TRUE)
def test_an_unusual_history_without_a_fault_is_not_accused(name: str) -> None:
    history = TRUE[name]
    verdict = audit(history.lines, history.table, history.topic, history.scope)
    assert (verdict.faults, verdict.declared) == ({}, {history.named: 1} if history.named else {})
    assert verdict.kept or not verdict.acked


def test_whatever_is_named_of_a_row_names_the_event() -> None:
    shifted = [TOPIC[0]._replace(offset=999), *TOPIC[1:]]
    (violation,) = audit(LINES, shifted, TOPIC).violations
    assert violation.marks == (1,)
    assert "there is no such record" in str(violation)


@pytest.mark.guarantee(0)
@given(true_histories())
@settings(max_examples=60, deadline=None)
def test_a_true_history_is_never_accused(true: Run) -> None:
    verdict = audit(true.lines, true.table, true.topic, true.scope)
    assert verdict.faults == {}, verdict.violations
    alone = audit(true.lines, true.table, scope=true.scope)
    assert alone.faults == {}, alone.violations
