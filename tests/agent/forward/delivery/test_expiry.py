"""Expired events are not sent; the gateway's own are, and so are those that may have been sent before."""

from __future__ import annotations

import pytest

from agent.forward.delivery.lanes import Expiry
from agent.forward.forwarder import ForwardedLane
from contract.event import Event, gateway_device
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
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
