"""Records that are too large for Kafka become a gap, wherever they are refused, and the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.forward.error import SessionError
from agent.forward.oversized import REASON, Suspects, give_up
from agent.store.port import StoredEvent
from contract.event import Event
from contract.record import encode_tail
from tests.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.forward.events import device, readings
from tests.forward.kafka_side import KafkaSide
from tests.forward.running import forwarding
from tests.support.memory_outbox import RECEIVED, MemoryOutbox, stored

LARGE = Event(device(1), id=7, data={"trace": "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(3_000))})
"""Hardly to be compressed."""


@contextmanager
def outbox_with_two_large(kafka: KafkaSide, delivery: str, **properties: str) -> Iterator[MemoryOutbox]:
    outbox = MemoryOutbox()
    outbox.append(*readings(50), LARGE, *readings(50, 50), LARGE)
    with forwarding(kafka.settings(delivery, **properties), outbox):
        wait_until_forwarded(outbox)
        yield outbox


@pytest.mark.kafka
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_the_producer_refuses_is_given_up_and_the_rest_goes_on(kafka: KafkaSide, delivery: str) -> None:
    with outbox_with_two_large(kafka, delivery, message_max_bytes="3000", batch_size="3000") as outbox:
        assert outbox.given_up == {51: REASON, 102: REASON}

    assert_each_once(kafka, outbox)


@pytest.mark.kafka
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_the_broker_refuses_is_given_up_and_the_rest_goes_on(kafka: KafkaSide, delivery: str) -> None:
    kafka.configure_topic("max.message.bytes", "3000")

    with outbox_with_two_large(kafka, delivery) as outbox:
        assert outbox.given_up == {51: REASON, 102: REASON}
        outbox.append(*readings(50, 100))
        wait_until_forwarded(outbox)

    if delivery == "exactly-once":
        assert_each_once(kafka, outbox)
    else:
        assert_nothing_lost(kafka, outbox)


def test_a_suspect_goes_alone() -> None:
    events = [stored(position, Event("d", data={})) for position in range(1, 7)]
    suspects = Suspects()
    assert suspects.cut(events) == events

    suspects.add(3, 4)

    assert [event.position for event in suspects.cut(events)] == [1, 2]
    assert [event.position for event in suspects.cut(events[2:])] == [3]
    assert [event.position for event in suspects.cut(events[3:])] == [4]
    assert [event.position for event in suspects.cut(events[4:])] == [5, 6]
    suspects.clear(3)
    assert [event.position for event in suspects.cut(events)] == [1, 2, 3]


def test_the_gateways_own_events_are_never_given_up() -> None:
    outbox = MemoryOutbox()
    event = stored(1, Event("urn:oncegate:gateway:gw-1", "gateway.gap", "x", data={}))
    own = StoredEvent(
        event.position,
        event.label,
        event.fingerprint,
        encode_tail(Event("urn:oncegate:gateway:gw-1", "gateway.gap", "x", data={}), RECEIVED, "gateway"),
        event.clock,
        event.shared,
        event.bound,
    )

    with pytest.raises(SessionError, match=r"max\.message\.bytes"):
        give_up(outbox, own, 900)

    assert outbox.given_up == {}
