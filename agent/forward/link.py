"""Whether Kafka can be reached, as the log tells it: once at each change."""

from __future__ import annotations

import logging

from agent.clock import Clock
from agent.forward.error import ClonedError, ForwardError, TopicMissingError, UnreachableError
from contract.moment import rfc3339

REACHABLE, UNREACHABLE, TOPIC_MISSING, FAILING, CLONED = (
    "reachable",
    "unreachable",
    "topic-missing",
    "failing",
    "cloned",
)
STATES = (REACHABLE, UNREACHABLE, TOPIC_MISSING, FAILING, CLONED)
STOPPED_FACT = "forwarder.stopped"
"""The durable fact that says why nothing is forwarded until the next start; empty where it is."""

_log = logging.getLogger(__name__)


class Link:
    """The state of the way to the topic."""

    def __init__(self, clock: Clock, hint: str) -> None:
        self._clock = clock
        self._hint = hint
        self.state = ""
        """One of STATES; empty until something is known."""
        self._since = ""

    def answered(self) -> None:
        """Note that a broker answers; what keeps failing is not repaired by that."""
        if self.state != FAILING and self._change(REACHABLE):
            _log.info("kafka=reachable since=%s", self._since)

    def took(self) -> None:
        """Note that the topic took a batch."""
        if self._change(REACHABLE):
            _log.info("kafka=reachable since=%s", self._since)

    def down(self, error: ForwardError) -> None:
        """Note that it did not, or that it took back what it had begun."""
        if isinstance(error, TopicMissingError):
            if self._change(TOPIC_MISSING):
                _log.error("kafka=topic-missing since=%s reason=%r create=%r", self._since, str(error), self._hint)
        elif isinstance(error, UnreachableError):
            if self._change(UNREACHABLE):
                _log.warning("kafka=unreachable since=%s reason=%r", self._since, str(error))
        elif isinstance(error, ClonedError):
            if self._change(CLONED):
                _log.error("kafka=cloned since=%s reason=%r", self._since, str(error))
        elif self._change(FAILING):
            _log.warning("kafka=failing since=%s reason=%r", self._since, str(error))

    def _change(self, state: str) -> bool:
        if state == self.state:
            return False
        self.state, self._since = state, rfc3339(self._clock.wall())
        return True


class Silence:
    """How long nothing that was sent has been reported: our own measure, since the client's may be missed."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._outstanding = 0
        self._since = 0

    def lasts(self, outstanding: int) -> bool:
        """Take the number of records that are sent and not reported; tell whether it stands still for too long."""
        now = self._clock.monotonic()
        if not outstanding or outstanding != self._outstanding:
            self._outstanding, self._since = outstanding, now
            return False
        return now - self._since >= self._limit_ms

    def __str__(self) -> str:
        """Say for how long."""
        return f"no delivery report for {self._limit_ms / 1000:g} s"
