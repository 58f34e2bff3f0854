"""The layout of the live view, and the figures in it."""

from dataclasses import replace
from typing import Any

import pytest

from agent.cli.top.figures import Figures, Sample, between
from agent.cli.top.frame import frame
from agent.terminal import Colour

STARTED = 1_767_225_600_000
LINKS = {"kafka": {"state": "unreachable", "up": False, "since": STARTED, "reason": "kafka-1:9092:\x1b[31m refused"}}
DEVICE = {"device": "urn:dev:mac:00158d0001a2b3c4", "events": 3, "duplicates": 2, "rejected": 1, "last_seen": STARTED}
VALUES: dict[str, Any] = {
    "data": {"t": 21.5, "on": True, "x": "\x1b"},
    "units": {"t": "Cel"},
    "outcome": "accepted",
    "reason": "",
}
ENTRY = {"outcome": "refused", "via": "coap", "device": "x" * 99, "reason": "why", "fingerprint": ""}


def sample(at: float, now: int = STARTED + 60_000, **metrics: float) -> Sample:
    status = {"gateway": "gw1", "oldest_unprocessed": STARTED}
    live = {"status": status, "version": "1", "form": "pure", "now": now, "started": STARTED, "clock": "trusted"}
    live |= {"trouble": "", "links": LINKS, "devices": [DEVICE] * 40, "feed": [ENTRY] * 40}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float]
    found = {("oncegate_commit_seconds_bucket", (("le", bound),)): 0.0 for bound in ("0.005", "0.01", "+Inf")}
    for name, value in metrics.items():
        metric, _, label = name.partition("__")
        key, _, word = label.partition("_")
        labels = ((key, {"5ms": "0.005", "10ms": "0.01", "all": "+Inf"}.get(word, word)),) if label else ()
        found[f"oncegate_{metric}", labels] = value
    return Sample(at, live, found)


BEFORE = sample(
    10.0, events_accepted_total__via_coap=100, outbox_events__state_new=5, outbox_events__state_forwarded=50
)
AFTER = sample(
    12.0,
    events_accepted_total__via_coap=140,
    events_accepted_total__via_http=2,
    outbox_events__state_new=7,
    outbox_events__state_forwarded=40,
    commit_seconds_count=20,
    commit_seconds_sum=0.06,
    commit_seconds_bucket__le_5ms=18,
    commit_seconds_bucket__le_10ms=20,
    commit_seconds_bucket__le_all=20,
)


def test_the_figures_are_those_of_the_interval() -> None:
    figures = between(BEFORE, AFTER)
    assert (figures.accepted, figures.accepted_by_via["coap"], figures.accepted_by_via["http"]) == (21, 20, 1)
    assert (figures.sent, figures.confirmed) == (20, 25)
    assert (figures.new, figures.forwarded, figures.oldest_seconds, figures.uptime_seconds) == (7, 40, 60, 60)
    assert (figures.commits, figures.commit_seconds_95) == (10, 0.01)
    assert figures.commit_seconds_mean == pytest.approx(0.003)


def test_after_a_restart_of_the_agent_no_rate_is_below_zero() -> None:
    figures = between(AFTER, sample(14.0))
    assert (figures.accepted, figures.commits, figures.commit_seconds_mean) == (0, 0, None)
    assert min(figures.sent, figures.confirmed) >= 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60), (40, 12), (1, 1)])
def test_a_frame_is_as_large_as_the_screen_and_holds_no_control_character(columns: int, rows: int) -> None:
    lines = frame(between(BEFORE, AFTER), columns, rows, "q quits")
    assert [len(text) for text, _ in lines] == [columns] * rows
    assert all(text.isprintable() for text, _ in lines)


def test_a_store_that_cannot_store_says_so() -> None:
    figures: Figures = replace(between(BEFORE, AFTER), trouble="the store is full")
    assert frame(figures, 80, 24, "")[1] == ("nothing can be stored: the store is full".ljust(80), Colour.BAD)
