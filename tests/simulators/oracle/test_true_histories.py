"""The oracle finds no fault in a true history, and names every fault that an operator adds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.simulators.oracle.breaking import OPERATORS
from tests.simulators.oracle.judged_field import audit
from tests.simulators.oracle.true_histories import Run, true_histories

BROKEN_EACH = 8
"""Histories per operator: together more than two hundred."""


@pytest.mark.guarantee(0)
@given(true_histories())
@settings(max_examples=60, deadline=None)
def test_a_true_history_is_never_accused(true: Run) -> None:
    verdict = audit(true.lines, true.table, true.topic, true.scope)
    assert verdict.faults == {}, verdict.violations
    alone = audit(true.lines, true.table, scope=true.scope)
    assert alone.faults == {}, alone.violations


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("name", OPERATORS)
@given(true=true_histories(), random=st.integers(0, 1_000))
@settings(max_examples=BROKEN_EACH, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_whatever_breaks_a_true_history_is_named(name: str, true: Run, random: int) -> None:
    operator, faults = OPERATORS[name]
    broken = operator(true, Random(random))
    assume(broken is not None)
    assert broken is not None
    verdict = audit(broken.lines, broken.table, broken.topic, broken.scope)
    assert faults & verdict.faults.keys(), (verdict.faults, broken)
