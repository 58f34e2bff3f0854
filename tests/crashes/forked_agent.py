"""The whole agent in a child of this process, which has imported it once: a start takes some milliseconds."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from agent.cli import main, run
from agent.forward import forwarder
from agent.http import server
from agent.store import layout

POLL_SECONDS = 0.002
LOG_BYTES_KEPT = 48 << 10
"""Of the write-ahead log, instead of 4 MB: a short load restarts the log several times."""
_PR_SET_PDEATHSIG = 1
IMPORTED = (forwarder, run, server)
"""Imported here, for all children."""


class ForkedAgent:
    """`oncegate run` as a child process; its log continues in one file."""

    def __init__(self, configuration: Path, log: Path) -> None:
        self._configuration = configuration
        self._log = log
        self._pid = 0
        self.status: int | None = None
        """The exit status, negative for a signal; None while it runs."""

    def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Start the agent; `before` is called in its process at first."""
        self.status = None
        self._pid = os.fork()
        if self._pid == 0:
            self._run(before)

    def is_alive(self) -> bool:
        """Whether the agent runs."""
        if self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def end(self, number: signal.Signals, seconds: float) -> int | None:
        """Send a signal and wait for the end; return the exit status, None where the agent had to be killed."""
        if self.is_alive():
            os.kill(self._pid, number)
        if self.wait(seconds) is None:
            os.kill(self._pid, signal.SIGKILL)
            self.wait(60)
            return None
        return self.status

    def wait(self, seconds: float) -> int | None:
        """Wait for the end; return the exit status, None where the agent still runs."""
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self.status

    def _run(self, before: Callable[[], None]) -> None:
        status = 70
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            layout.LOG_BYTES_KEPT = LOG_BYTES_KEPT
            sys.argv = ["oncegate", "run", "--config", str(self._configuration)]
            before()
            main.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 (a child must not return into the code of its parent)
            traceback.print_exc()
        finally:
            os._exit(status)
