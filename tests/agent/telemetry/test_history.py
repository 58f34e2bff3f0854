"""The history for the charts of the status page, and the states of connections, which no log level changes."""

import logging
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.telemetry.history import SPANS, TICK_SECONDS, History, Totals
from agent.telemetry.links import LinkName, Links, LinkState, document_of, reports_of
from tests.agent.store.stores import HandClock

DAY_SECONDS = 86_400


class Counted:
    def __init__(self) -> None:
        self.totals = Totals(0, 0, 0, 0, 0, 0, 0.0)
        self.clock = HandClock()
        self.history = History(lambda: self.totals, self.clock)

    def pass_ticks(self, ticks: float, **totals: float) -> None:
        self.clock.pass_seconds(ticks * TICK_SECONDS)
        self.totals = self.totals._replace(**totals)  # type: ignore[arg-type]
        self.history.sample()

    def column(self, name: str, span: str = "15min") -> Sequence[float | None]:
        column: Sequence[float | None] = self.history.document(span)[name]  # type: ignore[assignment]
        return column


def test_a_point_has_the_rates_of_its_interval_and_batches_that_are_returned_are_no_negative_rate() -> None:
    counted = Counted()
    counted.pass_ticks(1, accepted=50, sent=20, confirmed=5, new=30, forwarded=15, commits=10, commit_seconds=0.05)
    counted.pass_ticks(1, accepted=60, sent=60, confirmed=60, new=0, forwarded=0)
    counted.pass_ticks(1, sent=0, new=60)
    assert counted.column("accepted") == [10, 2, 0]
    assert counted.column("sent") == [4, 8, 0]
    assert counted.column("confirmed") == [1, 11, 0]
    assert counted.column("new") == [30, 30, 60]
    assert counted.column("forwarded") == [15, 15, 0]
    assert counted.column("ack_ms") == [5, None, None]
    assert counted.history.document("15min")["end"] == counted.clock.now


def test_time_without_a_sample_gets_the_mean_of_all_of_it() -> None:
    counted = Counted()
    counted.pass_ticks(4.1, accepted=205)
    assert counted.column("accepted") == [10] * 4
    counted.pass_ticks(1e6)
    assert counted.column("accepted") == [0] * SPANS["15min"].points_max


def test_a_point_of_the_day_has_the_mean_rate_and_the_peak_of_the_backlog() -> None:
    counted = Counted()
    ticks = SPANS["24h"].ticks
    for tick in range(1, ticks + 1):
        counted.pass_ticks(1, accepted=5 * tick, new=7_000 if tick == 3 else 0)
    assert (counted.column("accepted", "24h"), counted.column("new", "24h")) == ([1], [7_000])
    assert counted.column("accepted") == [1] * ticks


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0.9, 5)), max_size=40))
def test_no_accepted_event_is_missing_in_the_rates(steps: list[tuple[int, float]]) -> None:
    counted, begun = Counted(), 0.0
    for accepted, ticks in steps:
        counted.pass_ticks(round(ticks), accepted=counted.totals.accepted + accepted)
        begun += round(ticks)
    rates = counted.column("accepted")
    if begun <= SPANS["15min"].points_max:
        total = sum(rate for rate in rates if rate is not None) * TICK_SECONDS
        assert total == pytest.approx(counted.totals.accepted, abs=0.01 * (len(rates) + 1))


def test_a_full_history_takes_what_is_stated() -> None:
    counted = Counted()
    for tick in range(DAY_SECONDS // TICK_SECONDS + 200):
        counted.pass_ticks(1, accepted=tick * 977, commits=tick * 3, commit_seconds=tick / 7)
    size = 0
    for name, series in counted.history._series.items():
        document = counted.history.document(name)
        assert len(counted.column("accepted", name)) == SPANS[name].points_max == document["points_max"]
        size += sum(map(sys.getsizeof, series._columns.values()))
    assert size < 25_000


DOWN = LinkState("unreachable", up=False, level=logging.WARNING)
HELD = LinkState("held", up=False, level=logging.WARNING, logs_each_reason=True)


def test_since_is_when_the_state_began_and_the_reason_is_the_latest(clock: HandClock) -> None:
    links = Links(clock)
    began = clock.wall_ms()
    links.report(LinkName.MQTT, DOWN, "first")
    clock.pass_seconds(60)
    links.report(LinkName.MQTT, DOWN, "second")
    state = {"state": "unreachable", "up": False, "paused": False, "since": began, "reason": "second"}
    assert document_of(links.reports()) == {"mqtt": state}


def test_a_state_is_logged_once_and_each_reason_only_where_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    links = Links(HandClock())
    for reason in ("a", "b", "b"):
        links.report(LinkName.KAFKA, DOWN, reason)
        links.report(LinkName.RECEIPTS, HELD, reason)
    logged = [message.split(" ")[0] for message in caplog.messages]
    assert logged == ["kafka=unreachable", "receipts=held", "receipts=held"]


def test_the_trouble_of_a_connection_that_all_lanes_share_is_shown_without_a_lane(clock: HandClock) -> None:
    lanes = {lane: Links(clock) for lane in ("default", "alarms")}
    for lane, name in (("default", LinkName.MQTT), ("alarms", LinkName.KAFKA)):
        lanes[lane].report(name, DOWN, "fenced")
    shown = reports_of(lanes)
    assert [(name, report.reason) for name, report in shown.items()] == [
        (LinkName.KAFKA, "lane alarms: fenced"),
        (LinkName.MQTT, "fenced"),
    ]
