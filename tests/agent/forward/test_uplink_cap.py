"""The cap of the uplink on the wire of a real broker, and lanes over a thin link: an alarm waits for no backlog."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings
from agent.forward.forwarder import SILENCE_MS
from agent.forward.kafka.uplink import open_uplink
from agent.forward.modes.lanes import ForwardedLane, Turn
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, LinkedTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.links import CountingLink, ThinLink
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

RATE = 20_000
SETTLING_SECONDS, MEASURED_SECONDS = 8.0, 30.0
TOLERANCE = 0.05
MODES = ("at-least-once", "exactly-once", "at-most-once")


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_on_the_wire_are_those_of_the_cap(linked: LinkedTopic, mode: str, outbox: MemoryOutbox) -> None:
    outbox.append(*readings(60_000))
    capped, gateway = replace(linked.settings(mode), bytes_per_second_max=RATE), f"gw-{linked.topic}"
    lane = ForwardedLane(uplink=open_uplink(capped, SystemClock()))
    with CountingLink(*linked.link_ends) as link, forwarding(capped, outbox, gateway, silence_ms=SILENCE_MS, lane=lane):
        wait_until(lambda: link.total() > 0, "the first byte")
        start = time.monotonic() + SETTLING_SECONDS
        end = start + MEASURED_SECONDS
        wait_until(lambda: time.monotonic() >= end, "the measured time", seconds=2 * MEASURED_SECONDS)
        sent = link.sent_between(start, end) / MEASURED_SECONDS
        assert outbox.new > 0
        assert abs(sent / RATE - 1) <= TOLERANCE, f"{sent:.0f} bytes/s"
        assert lane.uplink is not None
        assert lane.uplink.state().sent_bytes <= link.total()


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_link_that_comes_back_is_not_flooded_and_retries_count(linked: LinkedTopic, mode: str) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(10_000))
    capped = replace(linked.settings(mode), bytes_per_second_max=RATE)
    begun = time.monotonic()
    with CountingLink(*linked.link_ends) as link:
        with forwarding(capped, outbox, f"gw-{linked.topic}", silence_ms=SILENCE_MS):
            for _ in range(3):
                before = outbox.new
                wait_until(lambda before=before: outbox.new < before - 500, "some are sent")  # type: ignore[misc]
                link.cut_off()
                threading.Event().wait(3)
                link.restore()
            wait_until_forwarded(outbox)
        seconds = time.monotonic() - begun
        assert link.total() <= RATE * (seconds + 3)
    assert_nothing_lost(linked, outbox)
    if mode == "exactly-once":
        assert_each_once(linked, outbox)


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
        asked: dict[Turn, int] = {}
        uplink = open_uplink(settings, clock)
        lanes = {
            ForwardedLane("", Turn(clock, 0, asked), uplink): self.backlog,
            ForwardedLane("alarms", Turn(clock, 10, asked), uplink): self.alarms,
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
