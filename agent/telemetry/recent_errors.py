"""The latest warnings and errors of the log, for the status page: in memory, bounded, and lost with the process."""

from __future__ import annotations

import logging
import threading
from collections import deque

from agent.log_pairs import pairs

ERRORS_MAX = 50
CHARACTERS_MAX = 1_000
"""Of a message, and of each of its values: a reason may contain text of a sender."""


class RecentErrors(logging.Handler):
    """Keeps the latest warnings and errors of this process's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._errors: deque[dict[str, object]] = deque(maxlen=ERRORS_MAX)
        self._lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Store a log record."""
        entry = {
            "time": int(record.created * 1000),
            "level": record.levelname.lower(),
            "message": record.getMessage()[:CHARACTERS_MAX],
            "fields": {key: value[:CHARACTERS_MAX] for key, value in pairs(record)},
        }
        with self._lock:
            self._errors.append(entry)

    def errors(self) -> list[dict[str, object]]:
        """Return the latest warnings and errors, in order."""
        with self._lock:
            return list(self._errors)
