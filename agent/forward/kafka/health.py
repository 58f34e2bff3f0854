"""The state of the connection to the topic, and the detection of a silent broker."""

import logging
from typing import Final

from agent.clock import Clock
from agent.forward.errors import ClonedError, ForwardError, TopicMissingError, UnreachableError, UnsupportedError
from agent.telemetry.links import LinkName, Links, LinkState

REACHABLE: Final = LinkState("reachable", up=True)
UNREACHABLE: Final = LinkState("unreachable", up=False, level=logging.WARNING)
"""No broker answers, neither to the forwarder nor to the receipts' poller."""
TOPIC_MISSING: Final = LinkState("topic-missing", up=False, level=logging.ERROR)
UNSUPPORTED: Final = LinkState("unsupported", up=False, level=logging.ERROR)
FAILING: Final = LinkState("failing", up=False, level=logging.WARNING)
CLOSED: Final = LinkState("outside-hours", up=True, paused=True)
"""Nothing is sent now, by `kafka.hours`."""
CLONED: Final = LinkState("cloned", up=False, level=logging.ERROR)
_STATES: Final = {
    TopicMissingError: TOPIC_MISSING,
    UnreachableError: UNREACHABLE,
    UnsupportedError: UNSUPPORTED,
    ClonedError: CLONED,
}


class TopicLink:
    """Reports the state of the connection to the topic."""

    def __init__(self, links: Links, create_command: str) -> None:
        self._links = links
        self._create_command = create_command

    def report_reachable(self) -> None:
        """Report that a broker answers, unless sending fails: an answer alone does not repair that."""
        if self._links.state(LinkName.KAFKA) != FAILING:
            self._links.report(LinkName.KAFKA, REACHABLE)

    def report_closed(self, begin: str) -> None:
        """Report that nothing is sent until a local time, such as `22:00`."""
        self._links.report(LinkName.KAFKA, CLOSED, f"kafka.hours begin at {begin}, the gateway's local time")

    def report_delivery(self) -> None:
        self._links.report(LinkName.KAFKA, REACHABLE)

    def report_failure(self, error: ForwardError) -> None:
        state = _STATES.get(type(error), FAILING)
        facts = {"create": self._create_command} if state == TOPIC_MISSING else {}
        self._links.report(LinkName.KAFKA, state, str(error), **facts)


class Silence:
    """Detects that no sent record is reported: its own timer, since the client's may be missed."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._outstanding = 0
        self._since = 0

    def lasts(self, outstanding: int) -> bool:
        """Whether the number of records that are sent and not reported has not changed for too long."""
        now = self._clock.monotonic_ms()
        if not outstanding or outstanding != self._outstanding:
            self._outstanding, self._since = outstanding, now
            return False
        return now - self._since >= self._limit_ms

    def __str__(self) -> str:
        return f"no delivery report for {self._limit_ms / 1000:g} s"
