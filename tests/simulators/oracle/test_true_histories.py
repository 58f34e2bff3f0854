"""The oracle finds no fault in a true history; test_false_histories.py has those with one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.simulators.oracle.judged_field import audit
from tests.simulators.oracle.true_histories import Run, true_histories


@pytest.mark.guarantee(0)
@given(true_histories())
@settings(max_examples=60, deadline=None)
def test_a_true_history_is_never_accused(true: Run) -> None:
    verdict = audit(true.lines, true.table, true.topic, true.scope)
    assert verdict.faults == {}, verdict.violations
    alone = audit(true.lines, true.table, scope=true.scope)
    assert alone.faults == {}, alone.violations
