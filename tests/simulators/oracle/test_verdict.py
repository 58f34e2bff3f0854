"""The sentence of a verdict, and when there is no verdict."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from simulators.oracle.verdict import BROKEN, Verdict, sentence

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
    for rows in (0, None):
        verdict = replace(GOOD, acked=0, rows=rows)
        assert not verdict.kept
        assert "No verdict: of 3 events none was acked" in sentence(verdict)
    assert replace(GOOD, acked=0, rows=1).kept


def test_what_was_judged_too_soon_is_no_verdict() -> None:
    verdict = replace(GOOD, arriving=True, unknown=2)
    assert not verdict.kept
    assert "judge again later" in sentence(verdict)
    assert "2 acked events are not there" in sentence(verdict)
    assert "Nothing was lost" not in sentence(verdict)


def test_what_may_still_be_in_transit_is_no_verdict() -> None:
    verdict = replace(GOOD, unknown=2)
    assert not verdict.kept
    assert "No verdict. 2 acked events are not there" in sentence(verdict)
    assert "--final" in sentence(verdict)


def test_an_interrupted_run_says_what_is_not_judged() -> None:
    said = sentence(replace(GOOD, complete=False))
    assert "interrupted" in said
    assert "not judged" in said
