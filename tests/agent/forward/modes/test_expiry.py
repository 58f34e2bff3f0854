"""What expires is not sent, but for the gateway's own; and a lane waits for those of higher priority that can send."""

from __future__ import annotations

import pytest

from agent.forward.modes.lanes import WAITED_FOR_MS, Expiry, ForwardedLane, Turn
from contract.event import Event, gateway_device
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

OWN = Event(gateway_device("gw"), "gateway.started", "e")
ALL = 1 << 40


def filled() -> MemoryOutbox:
    """Fill an outbox: an event of the gateway, four of sensors, one of the gateway, two of sensors."""
    outbox = MemoryOutbox()
    outbox.append(OWN, via="gateway")
    outbox.append(*readings(4))
    outbox.append(OWN, via="gateway")
    outbox.append(*readings(2, start=4))
    return outbox


def sent_in_turn(outbox: MemoryOutbox, expiry: Expiry) -> list[int]:
    """Return the positions that are sent, where each batch has all that is read at once."""
    sent: list[int] = []
    while outbox.wait(max(sent, default=0), 0):
        events = expiry.unexpired(outbox.read(max(sent, default=0), 100, ALL))
        sent += [event.position for event in events]
    return sent


def test_what_has_expired_is_given_up_and_the_gateways_own_events_are_sent() -> None:
    outbox = filled()
    outbox.old_to = 7
    assert sent_in_turn(outbox, Expiry(outbox, 60.0)) == [1, 6, 8]
    assert outbox.given_up == dict.fromkeys((2, 3, 4, 5, 7), "expired")


@pytest.mark.guarantee(4)
def test_what_may_have_been_sent_before_does_not_expire() -> None:
    outbox = filled()
    expiry = Expiry(outbox, 60.0)
    assert sent_in_turn(outbox, expiry) == [1, 2, 3, 4, 5, 6, 7, 8]
    outbox.append(*readings(2, start=6))
    outbox.old_to = 10
    assert sent_in_turn(outbox, expiry) == [1, 2, 3, 4, 5, 6, 7, 8]  # the next session begins with the first again
    assert outbox.given_up == dict.fromkeys((9, 10), "expired")


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_nothing_that_has_expired_is_in_the_topic(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    outbox = filled()
    outbox.old_to = 5
    lane = ForwardedLane("alarms", time_to_live_seconds=60.0)
    with forwarding(kafka.settings(mode), outbox, gateway, lane=lane):
        wait_until(lambda: not outbox.new, "all is sent or given up")
        wait_until(lambda: {sequence(record) for record in kafka.records()} == {1, 6, 7, 8}, "what is sent is there")
    assert set(outbox.given_up) == {2, 3, 4, 5}


def turns(clock: HandClock, *priorities: int) -> list[Turn]:
    asked: dict[Turn, int] = {}
    return [Turn(clock, priority, asked) for priority in priorities]


def test_a_lane_waits_while_one_of_higher_priority_has_events() -> None:
    high, low, lowest = turns(HandClock(), 10, 0, -1)
    assert low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    assert high.ask(has_events=True)
    assert not low.ask(has_events=True)
    assert not lowest.ask(has_events=True)
    high.ask(has_events=False)
    assert low.ask(has_events=True)
    low.ask(has_events=False)
    assert lowest.ask(has_events=True)


def test_lanes_of_equal_priority_neither_wait_for_each_other_nor_withdraw_what_the_other_has_asked() -> None:
    one, other, low = turns(HandClock(), 3, 3, 0)
    assert one.ask(has_events=True)
    assert other.ask(has_events=True)
    other.ask(has_events=False)
    assert not low.ask(has_events=True)


@pytest.mark.guarantee(4)
def test_nobody_waits_for_a_lane_that_does_not_ask_again(clock: HandClock) -> None:
    stuck, low = turns(clock, 10, 0)
    stuck.ask(has_events=True)
    clock.pass_seconds(WAITED_FOR_MS / 1000 - 1)
    assert not low.ask(has_events=True)
    clock.pass_seconds(1)
    assert low.ask(has_events=True)
