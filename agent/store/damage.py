"""Damage that is met while the store serves: noted once, so that the next opening salvages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.store.errors import FAILURES, DamagedStoreError, is_damage
from agent.store.files import swap
from agent.store.port import OutboxError

log = logging.getLogger(__name__)


class DamageReport:
    """Marks the store as damaged, and reports that once; thread-safe."""

    def __init__(self, path: Path, report: Callable[[BaseException], None]) -> None:
        self._path = path
        self._report = report
        self._damaged = threading.Event()

    def is_damaged(self) -> bool:
        """Whether damage was reported."""
        return self._damaged.is_set()

    def report(self, error: BaseException) -> None:
        """Request a salvage: the service has to close this store and open it again."""
        if not self._damaged.is_set():
            self._damaged.set()
            try:
                swap.suspect(self._path, str(error))
            except OSError as failure:
                log.error("store=damaged mark=failed reason=%r", str(failure))
            self._report(DamagedStoreError(str(error)))

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Report damage that is met within, and raise it as DamagedStoreError; any other failure as OutboxError."""
        try:
            yield
        except FAILURES as error:
            if not is_damage(error):
                raise OutboxError(f"the store fails: {error}") from error
            self.report(error)
            raise DamagedStoreError(str(error)) from error
