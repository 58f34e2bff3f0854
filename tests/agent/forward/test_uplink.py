"""The uplink: its cap on the wire, a thin one that holds no alarm back, a slow one, its clients' reports, its hours."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.clock import SystemClock
from agent.config import readers
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.kafka.health import CLOSED, REACHABLE, UNREACHABLE
from agent.forward.kafka.login_files import Hours
from agent.forward.kafka.uplink import Uplink, open_uplink
from agent.forward.modes.lanes import ForwardedLane, Rank
from agent.forward.receipts.poller import ReceiptPoller
from agent.forward.receipts.round import SharedRound
from agent.telemetry.links import LinkName, Links
from contract.event import Event
from contract.record import ClockTrust
from tests.agent.forward.broker import KafkaTopic, LinkedTopic
from tests.agent.forward.checks import assert_nothing_lost, processed, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.links import CountingLink, LateLink, ThinLink
from tests.agent.forward.modes.test_exactly_once import follow_clients
from tests.agent.forward.running import GATEWAY, ShiftedClock, forwarding, receipting, running
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

RATE = 20_000
SETTLING_SECONDS, MEASURED_SECONDS = 8.0, 30.0
TOLERANCE = 0.05
MODES = ("at-least-once", "exactly-once", "at-most-once")


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.kafka
def test_the_bytes_on_the_wire_are_those_of_the_cap(linked: LinkedTopic, mode: str) -> None:
    outbox = MemoryOutbox(*readings(60_000))
    capped, gateway = replace(linked.settings(mode), bytes_per_second_max=RATE), f"gw-{linked.topic}"
    lane = ForwardedLane(uplink=open_uplink(capped, SystemClock()))
    with CountingLink(*linked.link_ends) as link, forwarding(capped, outbox, gateway, lane=lane):
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
        asked: dict[Rank, int] = {}
        uplink = open_uplink(settings, clock)
        lanes = {
            ForwardedLane("", Rank(clock, 0, asked), uplink): self.backlog,
            ForwardedLane("alarms", Rank(clock, 10, asked), uplink): self.alarms,
        }
        stack = ExitStack()
        for lane, outbox in lanes.items():
            stack.enter_context(forwarding(settings, outbox, self._gateway, lane=lane))
        return stack


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.kafka
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
@pytest.mark.kafka
def test_events_are_receipted_over_a_link_on_which_connections_take_long(linked: LinkedTopic) -> None:
    outbox = MemoryOutbox(*readings(10))
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
    def __init__(self) -> None:
        super().__init__(SESSIONS_CAP, SystemClock())
        self.processed: Counter[Callable[[str], None]] = Counter()

    def statistics(self, lane: str | None = None) -> dict[str, Any]:
        properties = super().statistics(lane)
        process = properties["stats_cb"]
        self.processed[process] = 0

        def count(text: str) -> None:
            self.processed[process] += 1
            process(text)

        return {**properties, "statistics.interval.ms": 50, "stats_cb": count}


@pytest.mark.parametrize("mode", CLIENTS)
@pytest.mark.parametrize("events", [0, 10])
@pytest.mark.kafka
def test_the_reports_of_all_clients_are_processed_while_there_are_no_events_or_another_lane_has_its_turn(
    kafka: KafkaTopic, gateway: str, events: int, mode: str
) -> None:
    asked: dict[Rank, int] = {}
    other, rank = (Rank(SystemClock(), priority, asked) for priority in (10, 0))
    outbox = MemoryOutbox(*readings(events))
    other.ask(has_events=bool(events))
    uplink = CountedUplink()
    lane = ForwardedLane(rank=rank, uplink=uplink)
    with forwarding(kafka.settings(mode), outbox, gateway, lane=lane) as links:
        wait_until(lambda: links.state(LinkName.KAFKA) == REACHABLE, "the session begins")
        wait_until(lambda: len(uplink.processed) == CLIENTS[mode], "its clients are open")
        before = uplink.processed.copy()

        def all_processed() -> bool:
            other.ask(has_events=bool(events))
            return all(uplink.processed[client] >= count + REPORTS for client, count in before.items())

        wait_until(all_processed, "the reports of all clients are processed", seconds=20)
        assert outbox.new == events


HOUR_MS = 3_600_000
START_BYTES_MAX = 2_000
"""The clients that check the properties at the start may connect."""
DAY_MINUTES = 24 * 60


def test_hours_are_read_as_spans_of_the_day() -> None:
    assert readers.hours(["22:00-06:00", "12:30-12:45"]) == ((1320, 360), (750, 765))
    assert readers.hours("01:00-02:00,03:00-04:00") == ((60, 120), (180, 240))
    for wrong in ("", "24:00-01:00", "01:00-01:00", "1-2", ["01:60-02:00"], 5, [1]):
        with pytest.raises(ValueError, match="hours such as"):
            readers.hours(wrong)


SPANS = st.tuples(st.integers(0, DAY_MINUTES - 1), st.integers(0, DAY_MINUTES - 1)).filter(
    lambda span: span[0] != span[1]
)


@given(spans=st.lists(SPANS, min_size=1, max_size=3), minute=st.integers(0, DAY_MINUTES - 1))
def test_the_next_begin_is_that_of_the_first_span_to_come(spans: list[tuple[int, int]], minute: int) -> None:
    clock = HandClock()
    midnight = time.mktime((2026, 1, 15, 0, 0, 0, 0, 0, -1))
    clock.now = int(midnight * 1000) + minute * 60_000
    included = set[int]()
    for first, last in spans:
        included |= {at % DAY_MINUTES for at in range(first, last if first < last else last + DAY_MINUTES)}
    left = next(wait for wait in range(DAY_MINUTES) if (minute + wait) % DAY_MINUTES in included)
    begin = (minute + left) % DAY_MINUTES
    assert Hours(spans, clock).next_begin() == (f"{begin // 60:02}:{begin % 60:02}" if left else None)
    clock.trusted = ClockTrust.UNTRUSTED
    assert Hours(spans, clock).include_now()


@pytest.mark.heavy
@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.kafka
def test_nothing_is_sent_outside_the_hours(linked: LinkedTopic, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = follow_clients(monkeypatch)
    outbox = MemoryOutbox(*readings(100))
    clock = ShiftedClock(trusted=True)
    now = time.localtime(clock.wall_ms() / 1000)
    first = (now.tm_hour * 60 + now.tm_min + 180) % DAY_MINUTES
    spans = ((first, (first + 360) % DAY_MINUTES),)
    settings, receipts = replace(linked.settings(mode), hours=spans), ReceiptSettings(poll_seconds=0.1)
    poller = ReceiptPoller(settings, receipts, GATEWAY, outbox, Links(clock), Random(7), Hours(spans, clock))
    with (
        CountingLink(*linked.link_ends) as link,
        forwarding(settings, outbox, f"gw-{linked.topic}", clock=clock) as links,
        running(poller.run),
    ):
        wait_until(lambda: links.state(LinkName.KAFKA) == CLOSED, "the hours have not begun")
        assert link.total() < START_BYTES_MAX
        assert outbox.new == 100
        clock.wall_shift_ms = 5 * HOUR_MS
        wait_until_forwarded(outbox)
        clock.wall_shift_ms = 0
        assert clients
        wait_until(lambda: links.state(LinkName.KAFKA) == CLOSED, "the hours are over")
        wait_until(lambda: not clients, "no client is open", seconds=10)
        outbox.append(*readings(100, 100))
        start = time.monotonic() + 1
        wait_until(lambda: time.monotonic() > start + 2, "two seconds outside the hours")
        assert link.sent_between(start, start + 2) == 0
        assert outbox.new == 100
        clock.wall_shift_ms = 5 * HOUR_MS
        wait_until_forwarded(outbox)
    if mode != "at-most-once":
        assert_nothing_lost(linked, outbox)
