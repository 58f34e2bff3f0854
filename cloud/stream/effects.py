"""The user's effects: called with the new rows of each batch, after its commit and before its receipts.

The table itself says which rows its latest batch has added, so that after a crash, on another host too, the same rows
are handed over under the same key, before any later batch. The checkpoint keeps the key of those that are done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

from cloud.errors import HookError, HookTimeError
from cloud.hooks import Hook
from cloud.runtime.unbounded_calls import within
from cloud.stream.observer import Observer
from cloud.table.sink import EffectsSink, NewRows

RETRY_SECONDS_MAX = 60.0
"""The maximum delay of a call that fails repeatedly; the delays before are 1, 2, 4 … seconds."""

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Keeps the key of the latest rows whose effects are done; it may be lost, and they are done again."""

    def read_done(self) -> str | None:
        """Return the key; None where none is kept."""

    def write_done(self, key: str) -> None:
        """Keep the key."""


class Effects:
    """Calls the user's function until it returns, one batch after the other."""

    def __init__(
        self,
        hook: Hook,
        sink: EffectsSink,
        progress: Progress,
        flush: Callable[[], None],
        wait: Callable[[float], bool],
        observer: Observer,
        seconds_max: float,
    ) -> None:
        self._hook = hook
        self._sink = sink
        self._progress = progress
        self._flush = flush
        self._wait = wait
        """Waits for a request to stop, at most the given seconds."""
        self._observer = observer
        self._seconds_max = seconds_max
        with hook.called():
            pass  # its module can be imported, or the job ends at its start

    def __call__(self) -> bool:
        """Make the effects of the table's latest batch where they are not done; return False if a stop was requested.

        Raise HookTimeError where the function does not return in time: it may go on, so this process must end.
        """
        new = self._sink.new_rows()
        if new is None or new.key == self._progress.read_done():
            return True
        self._flush()  # or a power cut may take the rows, and other ones come under the same key
        begun = time.monotonic()
        for failures in count(1):
            try:
                self._call(new)
                break
            except HookError as error:
                delay = min(2.0 ** (failures - 1), RETRY_SECONDS_MAX)
                self._observer.effects_failed()
                logger.warning(
                    "key=%s stage=effects failures=%d retry_seconds=%g error=%r", new.key, failures, delay, str(error)
                )
                if self._wait(delay):
                    return False
        self._progress.write_done(new.key)
        self._observer.effects_done(seconds := time.monotonic() - begun)
        logger.info("key=%s stage=effects-done seconds=%.1f", new.key, seconds)
        return True

    def _call(self, new: NewRows) -> None:
        with self._hook.called() as call:
            within(self._seconds_max, lambda: call(new.rows, new.key), self._hook.name, HookTimeError)


def no_effects() -> bool:
    """Do nothing, in place of `Effects`."""
    return True
