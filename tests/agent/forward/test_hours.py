"""The hours of the uplink: outside of them nothing is sent to Kafka, and nothing is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import readers
from agent.config.settings import ReceiptSettings
from agent.forward.kafka.health import CLOSED
from agent.forward.kafka.login_files import Hours
from agent.forward.receipts.poller import ReceiptPoller
from agent.telemetry.links import LinkName, Links
from contract.record import ClockTrust
from tests.agent.forward.broker import LinkedTopic
from tests.agent.forward.checks import assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.links import CountingLink
from tests.agent.forward.modes.test_exactly_once import follow_clients
from tests.agent.forward.running import GATEWAY, ShiftedClock, forwarding, running
from tests.agent.store.stores import HandClock
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

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
@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once", "at-most-once"])
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
