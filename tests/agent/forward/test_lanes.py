"""Lanes over a thin link to a real broker: an alarm does not wait for the backlog of another lane."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings
from agent.forward.delivery.lanes import Turns
from agent.forward.forwarder import SILENCE_MS, ForwardedLane
from agent.forward.kafka.uplink import open_uplink
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, LinkedTopic
from tests.agent.forward.events import readings
from tests.agent.forward.links import ThinLink
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

LINK_RATE, CAP = 5_000, 4_000
BACKLOG = 3_000
ALARMS = 3
ALARM_SECONDS_MAX = 6.0
"""Five seconds, and one batch of the cap that is on the wire."""


class Lanes:
    """The outboxes and the forwarders of two lanes of one gateway."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self.backlog, self.alarms = MemoryOutbox(), MemoryOutbox()

    def forwarding(self, settings: KafkaSettings) -> ExitStack:
        """Forward both until the stack is closed."""
        clock = SystemClock()
        turns, uplink = Turns(clock), open_uplink(settings, clock)
        lanes = {
            ForwardedLane("", turns.of(0), uplink): self.backlog,
            ForwardedLane("alarms", turns.of(10), uplink): self.alarms,
        }
        stack = ExitStack()
        for lane, outbox in lanes.items():
            stack.enter_context(forwarding(settings, outbox, self._gateway, silence_ms=SILENCE_MS, lane=lane))
        return stack


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_an_alarm_overtakes_a_backlog_and_the_rest_follows(linked: LinkedTopic, mode: str) -> None:
    lanes = Lanes(f"gw-{linked.topic}")
    lanes.backlog.append(*readings(BACKLOG))
    thin = replace(linked.settings(mode), bytes_per_second_max=CAP)
    taken = []
    with ThinLink(*linked.link_ends, LINK_RATE), lanes.forwarding(thin):
        for number in range(ALARMS):
            before = lanes.backlog.new
            wait_until(lambda before=before: lanes.backlog.new < before - 100, "the backlog moves", seconds=120)  # type: ignore[misc]
            start = time.monotonic()
            lanes.alarms.append(Event("urn:a", type="alarm", id=number, data={"x": number}))
            wait_until(lambda: not lanes.alarms.new, "the alarm is in the topic", seconds=120)
            taken.append(time.monotonic() - start)
        print(f"mode={mode} alarms after {', '.join(f'{seconds:.1f}' for seconds in taken)} s")
        assert lanes.backlog.new > 0
    with lanes.forwarding(KafkaTopic.settings(linked, mode)):  # not over the link
        wait_until(lambda: not lanes.backlog.new and not lanes.alarms.new, "the rest follows", seconds=120)
    assert max(taken) <= ALARM_SECONDS_MAX
    sent = Counter(record.value() for record in linked.records())
    if mode != "at-most-once":
        assert len(sent) == BACKLOG + ALARMS
    if mode == "exactly-once":
        assert sent.total() == BACKLOG + ALARMS
    assert sum(b'"alarm"' in (value or b"") for value in sent) == ALARMS
