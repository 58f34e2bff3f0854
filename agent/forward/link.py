"""Whether Kafka can be reached, as the log tells it: once at each change."""

from __future__ import annotations

import logging

from agent.clock import Clock
from agent.forward.error import ForwardError, TopicMissingError, UnreachableError
from contract.moment import rfc3339

_log = logging.getLogger(__name__)


class Link:
    """The state of the way to the topic: `reachable`, `unreachable`, `topic-missing` or `failing`."""

    def __init__(self, clock: Clock, hint: str) -> None:
        self._clock = clock
        self._hint = hint
        self._state = ""
        self._since = ""

    def answered(self) -> None:
        """Note that a broker answers; what keeps failing is not repaired by that."""
        if self._state != "failing" and self._change("reachable"):
            _log.info("kafka=reachable since=%s", self._since)

    def took(self) -> None:
        """Note that the topic took a batch."""
        if self._change("reachable"):
            _log.info("kafka=reachable since=%s", self._since)

    def down(self, error: ForwardError) -> None:
        """Note that it did not, or that it took back what it had begun."""
        if isinstance(error, TopicMissingError):
            if self._change("topic-missing"):
                _log.error("kafka=topic-missing since=%s reason=%r create=%r", self._since, str(error), self._hint)
        elif isinstance(error, UnreachableError):
            if self._change("unreachable"):
                _log.warning("kafka=unreachable since=%s reason=%r", self._since, str(error))
        elif self._change("failing"):
            _log.warning("kafka=failing since=%s reason=%r", self._since, str(error))

    def _change(self, state: str) -> bool:
        if state == self._state:
            return False
        self._state, self._since = state, rfc3339(self._clock.wall())
        return True
