"""The state of each connection to the outside, as a value that log, status page and metrics share."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.clock import Clock
from contract.timestamp import rfc3339

_log = logging.getLogger(__name__)


class LinkName(StrEnum):
    """The agent's own connections, in the order in which they are shown; a way in of another package adds its name."""

    KAFKA = "kafka"
    RECEIPTS = "receipts"
    MQTT = "mqtt"


OF_LANES = frozenset((LinkName.KAFKA, LinkName.RECEIPTS))
"""Each lane has its own; the others are the default lane's."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """One of the states that a connection can be in; states are constants beside the code that reports them."""

    name: str
    up: bool
    """Whether the connection works as it should: the value of `oncegate_link_up`."""
    level: int = logging.INFO
    """The level of its log line."""
    paused: bool = False
    """Whether the connection is not used for now, as configured: the value of `oncegate_link_paused`."""
    logs_each_reason: bool = False
    """Whether another reason for the same state is logged, too."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """The last reported state of a connection."""

    state: LinkState
    since: int
    """When this state began, in milliseconds since 1970 UTC."""
    reason: str
    """The latest reason; empty where there is none."""


class Links:
    """The connections' latest states; any thread may report and read.

    A change of state is logged once. Nothing is read back from the log, so neither the log level nor text from
    outside can change what is shown.
    """

    def __init__(self, clock: Clock, lane: str = "") -> None:
        """Create them for a lane, whose name is empty for the default lane."""
        self._clock = clock
        self._lane = {"lane": lane} if lane else {}
        self._reports: dict[str, LinkReport] = {}
        self._lock = threading.Lock()

    def report(self, link: str, state: LinkState, reason: str = "", **facts: object) -> None:
        """Record the state of a connection, and log it where it changed; `facts` are logged with it."""
        with self._lock:
            before = self._reports.get(link)
            changed = before is None or before.state != state
            since = self._clock.wall_ms() if before is None or changed else before.since
            self._reports[link] = LinkReport(state, since, reason)
        if changed or (state.logs_each_reason and before is not None and before.reason != reason):
            facts = {**self._lane, "reason": reason, **facts} if reason else {**self._lane, **facts}
            pairs = "".join(f" {key}=%r" for key in facts)
            _log.log(state.level, f"{link}=%s since=%s{pairs}", state.name, rfc3339(since), *facts.values())

    def state(self, link: str) -> LinkState | None:
        """Return the latest state of a connection; None before the first report."""
        report = self._reports.get(link)
        return None if report is None else report.state

    def reports(self) -> dict[str, LinkReport]:
        """Return the latest report of each connection that has one, in the order of `LinkName`, others after these."""
        with self._lock:
            return _in_order(self._reports)


def reports_of(lanes: Mapping[str, Links]) -> dict[str, LinkReport]:
    """Return each connection's report from the first lane in trouble, which it names, else from the first lane."""
    shown: dict[str, LinkReport] = {}
    for lane, links in lanes.items():
        for link, report in links.reports().items():
            if link not in shown or (shown[link].state.up and not report.state.up):
                is_of_lane = not report.state.up and len(lanes) > 1 and link in OF_LANES
                shown[link] = replace(report, reason=f"lane {lane}: {report.reason}") if is_of_lane else report
    return _in_order(shown)


def document_of(reports: Mapping[str, LinkReport]) -> dict[str, dict[str, object]]:
    """Return reports in JSON's types."""
    return {
        str(link): {
            "state": report.state.name,
            "up": report.state.up,
            "paused": report.state.paused,
            "since": report.since,
            "reason": report.reason,
        }
        for link, report in reports.items()
    }


def _in_order(reports: Mapping[str, LinkReport]) -> dict[str, LinkReport]:
    return {link: reports[link] for link in dict.fromkeys([*LinkName, *reports]) if link in reports}
