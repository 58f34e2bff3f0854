"""The log: entries with fields for journald where it listens, lines otherwise, both with a limited rate.

In the journal each key of a message is a field of its own, such as ONCEGATE_KAFKA, so that
`journalctl ONCEGATE_KAFKA=unreachable` finds it.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.log_pairs import pairs
from agent.terminal import printable

SOCKET = Path("/run/systemd/journal/socket")
RATE_SECONDS = 10.0
RATE_MESSAGES = 20
"""How often one message may appear within that time; the next one has the number of suppressed ones."""
MESSAGES_MAX = 512
"""Messages that are counted at a time."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


def configure(level: str, environment: Mapping[str, str] = os.environ) -> None:
    """Configure this process's log: the journal where standard error is connected to it, else standard error."""
    handler: logging.Handler
    if _is_journal(environment.get("JOURNAL_STREAM", ""), sys.stderr.fileno()):
        handler = JournalHandler(SOCKET)
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(SafeFormatter(_FORMAT))
    handler.addFilter(RateLimit())
    logging.basicConfig(level=level, handlers=[handler])


class SafeFormatter(logging.Formatter):
    """Escapes terminal control characters; the lines of a traceback stay lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        """Return the message in one line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the library's name
        """Return a traceback, indented: what a sender said in it begins no line of the log."""
        return "  " + super().formatException(ei).replace("\n", "\n  ")

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, and the traceback where there is one."""
        return printable(super().format(record), keep="\n")


class RateLimit(logging.Filter):
    """Limits the rate of each message."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log; append the number of suppressed messages to the next one."""
        key, now = (record.name, str(record.msg)), time.monotonic()
        since, count = self._counts.get(key, (now, 0))
        if now - since >= RATE_SECONDS:
            if count > RATE_MESSAGES:
                arguments = record.args if isinstance(record.args, tuple) else ()
                message = str(record.msg) if arguments else record.getMessage().replace("%", "%%")
                record.msg, record.args = f"{message} suppressed=%d", (*arguments, count - RATE_MESSAGES)
            since, count = now, 0
        if len(self._counts) >= MESSAGES_MAX:
            self._counts.clear()
        self._counts[key] = (since, count + 1)
        return count < RATE_MESSAGES


class JournalHandler(logging.Handler):
    """Writes to journald in its native form (systemd's JOURNAL_NATIVE_PROTOCOL)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(SafeFormatter())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one entry; where that fails, print it to standard error."""
        try:
            self._socket.sendto(encode(fields_of(record, self.format(record))), str(self._path))
        except OSError:
            print(self.format(record), file=sys.stderr)

    def close(self) -> None:
        self._socket.close()
        super().close()


def fields_of(record: logging.LogRecord, text: str) -> dict[str, str]:
    """Return the fields of an entry; `text` is the message, with a traceback where there is one."""
    fields = {
        "MESSAGE": text,
        "PRIORITY": str(_PRIORITIES.get(record.levelno, 6)),
        "SYSLOG_IDENTIFIER": "oncegate",
        "ONCEGATE_LOGGER": record.name,
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName,
    }
    return fields | {f"ONCEGATE_{key.upper()}": value for key, value in pairs(record)}


def encode(fields: Mapping[str, str]) -> bytes:
    """Return an entry in the native format: a value with a newline is preceded by its length."""
    lines = []
    for name, value in fields.items():
        raw = value.encode(errors="backslashreplace")
        head = name.encode()
        lines.append(head + b"=" + raw if b"\n" not in raw else head + b"\n" + len(raw).to_bytes(8, "little") + raw)
    return b"\n".join(lines) + b"\n"


def _is_journal(stream: str, descriptor: int) -> bool:
    """Whether standard error is connected to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}" and SOCKET.exists()
