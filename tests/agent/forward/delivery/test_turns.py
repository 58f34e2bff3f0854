"""Turns: a lane waits for those of higher priority, and for none that cannot send."""

import pytest

from agent.forward.delivery.lanes import WAITED_FOR_MS, Turns
from tests.agent.store.stores import HandClock


def test_a_lane_waits_while_one_of_higher_priority_has_events() -> None:
    turns = Turns(HandClock())
    high, low, lowest = turns.of(10), turns.of(0), turns.of(-1)
    assert low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    assert high.ask(has_events=True)
    assert not low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    high.ask(has_events=False)
    assert low.ask(has_events=True)
    low.ask(has_events=False)
    assert lowest.ask(has_events=True)


def test_lanes_of_equal_priority_do_not_wait_for_each_other() -> None:
    turns = Turns(HandClock())
    one, other = turns.of(3), turns.of(3)
    assert one.ask(has_events=True)
    assert other.ask(has_events=True)


def test_a_lane_without_events_does_not_withdraw_what_another_of_its_priority_has_asked() -> None:
    turns = Turns(HandClock())
    one, other, low = turns.of(3), turns.of(3), turns.of(0)
    one.ask(has_events=True)
    other.ask(has_events=False)
    assert not low.ask(has_events=True)


@pytest.mark.guarantee(4)
def test_nobody_waits_for_a_lane_that_does_not_ask_again() -> None:
    clock = HandClock()
    turns = Turns(clock)
    stuck, low = turns.of(10), turns.of(0)
    stuck.ask(has_events=True)
    clock.pass_seconds(WAITED_FOR_MS / 1000 - 1)
    assert not low.ask(has_events=True)
    clock.pass_seconds(1)
    assert low.ask(has_events=True)
