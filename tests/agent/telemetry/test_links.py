"""The state of connections is a value: neither the log level nor the log's text changes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from agent.telemetry.links import LinkName, Links, LinksOfLanes, LinkState, document_of
from tests.agent.store.stores import HandClock

UP = LinkState("connected", up=True)
DOWN = LinkState("unreachable", up=False, level=logging.WARNING)
HELD = LinkState("held", up=False, level=logging.WARNING, logs_each_reason=True)


@pytest.fixture
def set_level() -> Iterator[Callable[[int], None]]:
    root = logging.getLogger()
    level = root.level
    yield root.setLevel
    root.setLevel(level)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING, logging.CRITICAL])
def test_a_recovery_is_seen_at_every_log_level(level: int, set_level: Callable[[int], None]) -> None:
    set_level(level)
    links = Links(HandClock())
    links.report(LinkName.KAFKA, DOWN, "connection refused")
    links.report(LinkName.KAFKA, UP)
    assert document_of(links.reports())["kafka"]["up"] is True
    assert links.state(LinkName.KAFKA) == UP


def test_since_is_when_the_state_began_and_the_reason_is_the_latest() -> None:
    clock = HandClock()
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
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == [
        "kafka=unreachable",
        "receipts=held",
        "receipts=held",
    ]


def test_of_several_lanes_a_connection_with_trouble_is_shown_with_its_lane() -> None:
    clock = HandClock()
    lanes = {lane: Links(clock) for lane in ("default", "alarms", "doors")}
    shown = LinksOfLanes(lanes)
    lanes["default"].report(LinkName.MQTT, DOWN, "broker")
    for links in lanes.values():
        links.report(LinkName.KAFKA, UP)
    assert shown.reports()[LinkName.KAFKA].state == UP
    lanes["doors"].report(LinkName.KAFKA, DOWN, "fenced")
    assert (shown.reports()[LinkName.KAFKA].state, shown.reports()[LinkName.KAFKA].reason) == (
        DOWN,
        "lane doors: fenced",
    )
    lanes["doors"].report(LinkName.KAFKA, UP)
    assert shown.reports()[LinkName.KAFKA].state == UP
    assert shown.reports()[LinkName.MQTT].reason == "broker"  # no lane has one of its own
    assert list(shown.reports()) == [LinkName.KAFKA, LinkName.MQTT]
