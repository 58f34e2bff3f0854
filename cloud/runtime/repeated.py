"""Calls of the user's effects, which are made again until they succeed."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Generator
from dataclasses import dataclass

from cloud.errors import HookError, HookTimeError, StopError
from cloud.hooks import Hook
from cloud.runtime.unbounded_calls import within

RETRY_SECONDS_MAX = 60.0
"""The maximum delay of a call that fails repeatedly; the delays before are 1, 2, 4 … seconds."""
_DOUBLINGS_MAX = 10  # a power of thousands of failures would be no number

logger = logging.getLogger(__name__)


class Counts:
    """Receives notice of calls, and ignores it."""

    def effects_failed(self) -> None:
        """Count a call that has failed, and is made again."""

    def effects_done(self, seconds: float) -> None:
        """Note the time that a batch's effects have taken, with their repetitions."""


@dataclass(slots=True)
class Repeated:
    """A hook that is called until it returns, after growing delays."""

    _hook: Hook
    _seconds_max: float
    _counts: Counts
    _failures: int = 0
    _begun: float | None = None

    def __post_init__(self) -> None:
        self._hook.check()

    def attempt(self, rows: object, key: str) -> float | None:
        """Call it; return the seconds until the next try, None once it has returned.

        Raise HookTimeError where it does not return in time: it may go on, so this process must end; StopError where it
        returns before it has begun.
        """
        begun = self._begun = self._begun or time.monotonic()
        try:
            with self._hook.called() as call:
                self._check(within(self._seconds_max, lambda: call(rows, key), self._hook.name, HookTimeError))
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

    def _check(self, returned: object) -> None:
        """Raise StopError where a function returns an awaitable or a generator, whose work has not begun."""
        if isinstance(returned, Awaitable | Generator | AsyncGenerator | map | filter):
            raise StopError(
                f"effects {self._hook.name}: it returns a {type(returned).__name__}, whose work has not begun: nothing "
                "of the batch is receipted. Have it do all of its work before it returns, such as by asyncio.run"
            )
