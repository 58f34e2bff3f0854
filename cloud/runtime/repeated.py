"""Calls of the user's effects, which are made again until they succeed."""

from __future__ import annotations

import logging
import time
from typing import Protocol

from cloud.errors import HookError, HookTimeError
from cloud.hooks import Hook
from cloud.runtime.unbounded_calls import within

RETRY_SECONDS_MAX = 60.0
"""The maximum delay of a call that fails repeatedly; the delays before are 1, 2, 4 … seconds."""
_DOUBLINGS_MAX = 10  # a power of thousands of failures would be no number

logger = logging.getLogger(__name__)


class Counts(Protocol):
    """Counts the calls."""

    def effects_failed(self) -> None:
        """Count a call that has failed, and is made again."""

    def effects_done(self, seconds: float) -> None:
        """Note the time that a batch's effects have taken, with their repetitions."""


class Repeated:
    """A hook that is called until it returns, after growing delays."""

    def __init__(self, hook: Hook, seconds_max: float, counts: Counts) -> None:
        self._hook = hook
        self._seconds_max = seconds_max
        self._counts = counts
        self._failures = 0
        self._begun: float | None = None
        hook.check()

    def attempt(self, rows: object, key: str) -> float | None:
        """Call it; return the seconds until the next try, None once it has returned.

        Raise HookTimeError where it does not return in time: it may go on, so this process must end.
        """
        begun = self._begun = self._begun or time.monotonic()
        try:
            with self._hook.called() as call:
                within(self._seconds_max, lambda: call(rows, key), self._hook.name, HookTimeError)
        except HookError as error:
            delay = min(2.0 ** min(self._failures, _DOUBLINGS_MAX), RETRY_SECONDS_MAX)
            self._failures += 1
            self._counts.effects_failed()
            logger.warning(
                "key=%s stage=effects failures=%d retry_seconds=%g error=%r", key, self._failures, delay, str(error)
            )
            return delay
        self._failures, self._begun = 0, None
        self._counts.effects_done(seconds := time.monotonic() - begun)
        logger.info("key=%s stage=effects-done seconds=%.1f", key, seconds)
        return None
