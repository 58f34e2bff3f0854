"""The cap of the uplink, measured on the wire of a real broker by a link that counts."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from agent.clock import SystemClock
from agent.forward.forwarder import SILENCE_MS, ForwardedLane
from agent.forward.kafka.uplink import open_uplink
from tests.agent.forward.broker import LinkedTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.links import CountingLink
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
def test_the_bytes_on_the_wire_are_those_of_the_cap(linked: LinkedTopic, mode: str) -> None:
    outbox = MemoryOutbox()
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
