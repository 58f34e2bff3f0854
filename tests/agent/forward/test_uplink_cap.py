"""The cap of the uplink, measured on the wire of a real broker by a link that counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from agent.clock import SystemClock
from agent.forward.forwarder import Forwarder
from agent.telemetry.links import Links
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.counting_link import CountingLink
from tests.agent.forward.events import readings
from tests.agent.forward.running import running
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

RATE = 20_000
SETTLING_SECONDS, MEASURED_SECONDS = 8.0, 30.0
TOLERANCE = 0.05
MODES = ("at-least-once", "exactly-once", "at-most-once")


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that advertises the link's address."""
    listens, says = ports.free(2)
    with Broker(tmp_path_factory.mktemp("linked"), Listener("PLAINTEXT", listens, says)) as broker:
        yield broker, listens, says


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_on_the_wire_are_those_of_the_cap(linked: tuple[Broker, int, int], mode: str) -> None:
    broker, listens, says = linked
    kafka = KafkaTopic(broker.bootstrap_servers, f"cap.{uuid4().hex}")
    kafka.create_topic()
    outbox = MemoryOutbox()
    outbox.append(*readings(60_000))
    capped = replace(kafka.settings(mode), bootstrap_servers=f"127.0.0.1:{says}", bytes_per_second_max=RATE)
    clock = SystemClock()
    forwarder = Forwarder(capped, f"gw-{uuid4().hex}", outbox, clock, Links(clock), Random(7))
    with CountingLink(says, listens) as link, running(forwarder.run):
        wait_until(lambda: link.total() > 0, "the first byte")
        start = time.monotonic() + SETTLING_SECONDS
        end = start + MEASURED_SECONDS
        wait_until(lambda: time.monotonic() >= end, "the measured time", seconds=2 * MEASURED_SECONDS)
        sent = link.sent_between(start, end) / MEASURED_SECONDS
        assert outbox.new > 0
        assert abs(sent / RATE - 1) <= TOLERANCE, f"{sent:.0f} bytes/s"
        assert forwarder.uplink is not None
        assert forwarder.uplink.state().sent_bytes <= link.total()


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_link_that_comes_back_is_not_flooded_and_retries_count(linked: tuple[Broker, int, int], mode: str) -> None:
    broker, listens, says = linked
    kafka = KafkaTopic(broker.bootstrap_servers, f"cap.{uuid4().hex}")
    kafka.create_topic()
    outbox = MemoryOutbox()
    outbox.append(*readings(10_000))
    capped = replace(kafka.settings(mode), bootstrap_servers=f"127.0.0.1:{says}", bytes_per_second_max=RATE)
    clock = SystemClock()
    forwarder = Forwarder(capped, f"gw-{uuid4().hex}", outbox, clock, Links(clock), Random(7))
    begun = time.monotonic()
    with CountingLink(says, listens) as link:
        with running(forwarder.run):
            for _ in range(3):
                before = outbox.new
                wait_until(lambda before=before: outbox.new < before - 500, "some are sent")  # type: ignore[misc]
                link.cut_off()
                threading.Event().wait(3)
                link.restore()
            wait_until_forwarded(outbox)
        seconds = time.monotonic() - begun
        assert link.total() <= RATE * (seconds + 3)
    assert_nothing_lost(kafka, outbox)
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)
