"""The cap of the uplink: what is sent stays within it, whatever the requests weigh."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.forward.kafka.uplink import BURST_SECONDS, STATISTICS_MS, WAITING_SECONDS_MAX, Uplink
from tests.agent.store.stores import HandClock

RATE = 10_000
EVENT_BYTES = 200
EVENTS_MAX = 1_000


class Client:
    """A producer whose statistics are made here: each event takes so many bytes on the wire."""

    def __init__(self, uplink: Uplink) -> None:
        self._properties = uplink.statistics("")
        self.sent_bytes = 0
        self.sent_events = 0
        self.queued = 0
        """Events that it has and that are not acknowledged."""

    def send(self, events: int, bytes_per_event: float, others: int) -> None:
        self.sent_events += events
        self.sent_bytes += int(events * bytes_per_event) + others

    def report(self) -> None:
        brokers = {"b1": {"txbytes": self.sent_bytes}, "bootstrap": {"txbytes": 0}}
        statistics = {"brokers": brokers, "txmsgs": self.sent_events, "msg_cnt": self.queued}
        self._properties["stats_cb"](json.dumps(statistics))


@pytest.mark.guarantee(4)
@settings(max_examples=60)
@given(
    bytes_per_event=st.floats(10, 1_000),
    others=st.integers(0, 1_000),
    turns=st.lists(st.booleans(), min_size=240, max_size=240),
)
def test_what_is_sent_is_within_the_cap_and_uses_it(bytes_per_event: float, others: int, turns: list[bool]) -> None:
    """Each turn is a quarter of a second; a link that is down holds everything back until it is up."""
    clock = HandClock()
    uplink = Uplink(RATE, clock)
    client, waiting = Client(uplink), 0
    totals = [(0.0, 0)]
    for number, is_up in enumerate([*turns, *[True] * 240]):
        while uplink.is_open():
            events = max(1, min(EVENTS_MAX, uplink.bytes_max // EVENT_BYTES))
            uplink.hand_over(events, events * EVENT_BYTES, "")
            waiting += events
        if is_up:
            client.send(waiting, bytes_per_event, others // 4)
            waiting = 0
        clock.pass_seconds(0.25)
        client.queued = waiting
        if number % 2:
            client.report()
        totals.append(((number + 1) / 4, client.sent_bytes))
    one = max(bytes_per_event, EVENT_BYTES * 2) + others  # an event is sent as a whole
    for (start, before), (end, after) in ((totals[at], totals[-1]) for at in range(0, len(totals) - 1, 20)):
        extra = RATE * (2 * BURST_SECONDS + WAITING_SECONDS_MAX + STATISTICS_MS / 1000) + one
        assert after - before <= RATE * (end - start) + extra
    (start, before), (end, after) = totals[-121], totals[-1]
    assert 0.95 * RATE * (end - start) - RATE * BURST_SECONDS <= after - before
    assert all(one <= other for (_, one), (_, other) in pairwise(totals))
    assert uplink.state().sent_bytes <= client.sent_bytes


def test_requests_about_the_topic_count_and_are_no_part_of_an_events_cost(clock: HandClock) -> None:
    uplink = Uplink(RATE, clock)
    admin = uplink.statistics()["stats_cb"]
    admin(json.dumps({"brokers": {"b1": {"txbytes": 3 * RATE}}, "txmsgs": 0, "msg_cnt": 0}))
    assert uplink.state().sent_bytes == 3 * RATE
    assert uplink.state().bytes_per_event == 0
    assert not uplink.is_open()
    clock.pass_seconds(1.5)
    assert not uplink.is_open()
    clock.pass_seconds(1)
    assert uplink.is_open()


def test_what_the_producer_of_a_lane_has_left_holds_no_other_lane_back(clock: HandClock) -> None:
    uplink = Uplink(RATE, clock)
    uplink.statistics("alarms")
    for _ in range(10):
        while uplink.is_open():
            uplink.hand_over(10, 10 * EVENT_BYTES, "alarms")
        clock.pass_seconds(1)
    assert not uplink.is_open()  # as much as may be is with the client, which may send it at once
    uplink.producer_closed("alarms")
    clock.pass_seconds(1)
    assert uplink.is_open()


def test_what_a_producer_has_dropped_unsent_holds_nothing_back(clock: HandClock) -> None:
    uplink = Uplink(RATE, clock)
    client = Client(uplink)
    for _ in range(10):
        while uplink.is_open():
            uplink.hand_over(10, 10 * EVENT_BYTES, "")
        clock.pass_seconds(1)
    client.queued = 1
    client.report()
    assert not uplink.is_open()
    client.queued = 0  # the rest was refused by the client, or purged with its transaction
    client.report()
    assert uplink.is_open()


def test_a_count_that_falls_with_a_deleted_topic_leaves_what_is_known_of_an_events_cost() -> None:
    uplink = Uplink(RATE, HandClock())
    client = Client(uplink)
    uplink.hand_over(10, 10 * EVENT_BYTES, "")
    client.send(10, 50, 0)
    client.report()
    client.sent_events = 0
    client.report()
    assert uplink.state().bytes_per_event == 50
