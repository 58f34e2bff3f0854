"""Links to a broker: the cap on the wire, a thin one that holds no alarm back, a slow one, and the clients' reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings
from agent.forward.forwarder import SILENCE_MS
from agent.forward.kafka.health import REACHABLE, UNREACHABLE
from agent.forward.kafka.uplink import Properties, Uplink, open_uplink
from agent.forward.modes.lanes import ForwardedLane, Turn
from agent.forward.receipts.round import SharedRound
from agent.telemetry.links import LinkName
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, LinkedTopic
from tests.agent.forward.checks import processed
from tests.agent.forward.events import readings
from tests.agent.forward.links import CountingLink, LateLink, ThinLink
from tests.agent.forward.running import forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

pytestmark = pytest.mark.kafka

RATE = 20_000
SETTLING_SECONDS, MEASURED_SECONDS = 8.0, 30.0
TOLERANCE = 0.05
MODES = ("at-least-once", "exactly-once", "at-most-once")


@pytest.mark.guarantee(4)
@pytest.mark.heavy
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
@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
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


ROUND_TRIP_SECONDS = 2.3
"""Of a link on which a client needs more than ten seconds for its connections, as with TLS on a cellular one.

A connection, metadata, the coordinator, a connection to it, and the group's offsets take five of them.
"""


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_events_are_receipted_over_a_link_on_which_connections_take_long(
    linked: LinkedTopic, outbox: MemoryOutbox
) -> None:
    outbox.append(*readings(10))
    far, shared = linked.settings(), SharedRound(0.1)
    with (
        LateLink(*linked.link_ends, ROUND_TRIP_SECONDS),
        forwarding(far, outbox, shared=shared),
        receipting(far, outbox, shared=shared) as links,
    ):
        wait_for_count(lambda: len(linked.records()), 10, "all are in the topic")
        linked.commit(None, linked.receipt())
        wait_for_count(lambda: processed(outbox), 10, "all are processed")
        assert links.state(LinkName.RECEIPTS) != UNREACHABLE


SESSIONS_CAP = 40_000
CLIENTS = {"at-least-once": 2, "exactly-once": 3, "at-most-once": 2}
REPORTS = 5
"""Reports of each client that are awaited: a client has queued some before the wait begins."""


class CountedUplink(Uplink):
    """Counts the reports of each client that are processed."""

    def __init__(self) -> None:
        super().__init__(SESSIONS_CAP, SystemClock())
        self.processed: Counter[Callable[[str], None]] = Counter()

    def statistics(self, lane: str | None = None) -> Properties:
        properties = super().statistics(lane)
        process = properties["stats_cb"]
        self.processed[process] = 0

        def count(text: str) -> None:
            self.processed[process] += 1
            process(text)

        return {**properties, "statistics.interval.ms": 50, "stats_cb": count}


@pytest.mark.parametrize("mode", CLIENTS)
@pytest.mark.parametrize("events", [0, 10])
def test_the_reports_of_all_clients_are_processed_while_there_are_no_events_or_another_lane_has_its_turn(
    kafka: KafkaTopic, gateway: str, events: int, mode: str, outbox: MemoryOutbox
) -> None:
    asked: dict[Turn, int] = {}
    other, turn = (Turn(SystemClock(), priority, asked) for priority in (10, 0))
    outbox.append(*readings(events))
    other.ask(has_events=bool(events))
    uplink = CountedUplink()
    lane = ForwardedLane(turn=turn, uplink=uplink)
    with forwarding(kafka.settings(mode), outbox, gateway, silence_ms=SILENCE_MS, lane=lane) as links:
        wait_until(lambda: links.state(LinkName.KAFKA) == REACHABLE, "the session begins")
        wait_until(lambda: len(uplink.processed) == CLIENTS[mode], "its clients are open")
        before = uplink.processed.copy()

        def all_processed() -> bool:
            other.ask(has_events=bool(events))
            return all(uplink.processed[client] >= count + REPORTS for client, count in before.items())

        wait_until(all_processed, "the reports of all clients are processed", seconds=20)
        assert outbox.new == events
