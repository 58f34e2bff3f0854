"""A topic with first records deleted by retention: the rest is judged, the deleted records are unknown."""

from collections.abc import Collection, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Line
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Scope, Verdict, sentence
from tests.simulators.oracle.judged_field import rows, sent_and_acked
from tests.simulators.oracle.true_histories import Run, true_histories

FIRST, SECOND, THIRD = (Event("d", id=number) for number in (1, 2, 3))
LINES = sent_and_acked(FIRST, SECOND, THIRD)
TOPIC = rows(FIRST, SECOND, THIRD)
STEPS = 150
IN_TRANSIT = Scope(complete=False, settled=False)


def audit(
    lines: Iterable[Line], topic: Sequence[Row], cut: Collection[int] = (), scope: Scope | None = None
) -> Verdict:
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(lines)
        evidence.add_topic_as_rows(topic, cut)
        return judge(evidence, scope)


@pytest.mark.guarantee(0)
def test_what_retention_may_have_deleted_is_not_called_lost_and_the_promise_not_kept() -> None:
    verdict = audit(LINES, TOPIC[1:], cut=[0])
    assert (verdict.faults, verdict.kept, verdict.unknown) == ({}, False, 1)
    said = sentence(verdict)
    assert "1 acked events are not there; it is unknown whether they were lost" in said
    assert "partition 0" in said
    assert "Nothing was lost" not in said


@pytest.mark.parametrize(
    ("topic", "cut", "scope", "faults"),
    [
        ([], [0, 1], Scope(), {}),
        (TOPIC, [0], Scope(), {}),
        (TOPIC[1:], [0], IN_TRANSIT, {}),  # what a later event has overtaken may be deleted, too
        (TOPIC[1:], [7], Scope(), {"lost": 1}),  # its device's partition has its beginning
        (TOPIC[1:], [7], IN_TRANSIT, {"lost": 1}),
    ],
)
def test_only_what_no_retention_has_deleted_is_lost_and_nothing_is_promised(
    topic: Sequence[Row], cut: list[int], scope: Scope, faults: dict[str, int]
) -> None:
    verdict = audit(LINES, topic, cut, scope)
    assert (verdict.faults, verdict.kept) == (faults, False)
    assert "Nothing was lost" not in sentence(verdict)


def test_what_is_wrong_with_what_is_left_is_named() -> None:
    again = TOPIC[2]._replace(sequence=9, offset=9)
    assert audit(LINES, [*TOPIC[1:], again], cut=[0]).doubled == 1
    stranger = TOPIC[2]._replace(device="another", sequence=9, offset=9)
    verdict = audit(LINES, [*TOPIC[1:], stranger], cut=[0])
    assert verdict.faults == {"invented": 1}
    assert "The guarantees were violated: 1 invented." in sentence(verdict)
    assert "it is unknown whether" in sentence(verdict)


def test_repeats_whose_first_copies_are_deleted_prove_no_order() -> None:
    topic = [TOPIC[1], TOPIC[2], TOPIC[0]._replace(offset=9)]
    assert audit(LINES, topic).faults == {"disordered": 2}
    assert audit(LINES, topic, cut=[0]).faults == {}
    epochs = [TOPIC[1]._replace(epoch="f"), TOPIC[0]._replace(offset=9)]
    assert "disordered" in audit(LINES, epochs).faults
    assert audit(LINES, epochs, cut=[0]).faults == {}


@pytest.mark.guarantee(0)
@given(true_histories(), st.tuples(st.integers(0, STEPS), st.integers(0, STEPS)))
@settings(max_examples=60, deadline=None)
def test_no_deleted_beginning_brings_an_accusation(true: Run, begins: tuple[int, int]) -> None:
    left = [row for row in true.topic if (row.offset or 0) >= begins[row.partition or 0]]
    cut = [partition for partition, begin in enumerate(begins) if begin]
    whole, verdict = audit(true.lines, true.topic), audit(true.lines, left, cut)
    assert verdict.faults.keys() <= whole.faults.keys(), verdict.violations
