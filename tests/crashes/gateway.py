"""One gateway that crashes: its folder, the agent on it, and the sensor that resends until all events are acked."""

import ctypes
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.cli import main, run
from agent.forward import forwarder
from agent.http import server
from agent.store import layout
from agent.store.layout import FILE_NAME, FLUSH_SOCKET_NAME
from simulators.services import ports
from tests.crashes.sensor import Ports, Sensor
from tests.support.agent_process import configured

MEMORY_FILES = Path("/dev/shm")  # what a crash leaves is computed: the flushes of its copies prove nothing
TRIES_FEW, TRIES_MANY = 3, 2_000
START_SECONDS_MAX, END_SECONDS_MAX = 120.0, 120.0
SUSPICION = "set by the test"
"""Why a store is salvaged at its next opening, though nothing is wrong with it."""
LOG_NAME = "agent.log"
Hook = Callable[[], None]


def nothing() -> None:
    """Do nothing."""


@contextmanager
def work_folder() -> Iterator[Path]:
    """Yield a folder, in memory if possible."""
    with tempfile.TemporaryDirectory(prefix="crashes-", dir=MEMORY_FILES if MEMORY_FILES.is_dir() else None) as name:
        yield Path(name)


class CrashingGateway:
    """A state folder, and an agent that is started on it again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.store = self.state / FILE_NAME
        self.ports = Ports(*ports.free(1, socket.SOCK_DGRAM), *ports.free(1))
        ways_in = {"coap": f"[::1]:{self.ports.coap}", "http": f"127.0.0.1:{self.ports.http}"}
        self.agent = ForkedAgent(configured(folder, **ways_in), folder / LOG_NAME)

    def replace(self, base: Path | None) -> None:
        """Replace the state by a copy of a folder, or by nothing, and begin a new log."""
        shutil.rmtree(self.state, ignore_errors=True)
        (self.folder / LOG_NAME).unlink(missing_ok=True)
        if base is not None:
            shutil.copytree(base, self.state)

    def live(self, sensor: Sensor, before: Hook) -> str:
        """Run the agent with a load once, and end it in order if it still runs; return what is wrong with its end."""
        self._start(before)
        sensor.send(self.agent.is_alive, TRIES_FEW)
        sensor.send_again(self.agent.is_alive, TRIES_FEW)
        return "" if self.agent.end(signal.SIGTERM, END_SECONDS_MAX) is not None else "the agent does not end"

    def recover(self, sensor: Sensor) -> list[str]:
        """Run the agent without a fault until all events are acked, and end it; return what is wrong with that."""
        self._start(nothing)
        sensor.send(self.agent.is_alive, TRIES_MANY)
        status = self.agent.end(signal.SIGTERM, END_SECONDS_MAX)
        found = [f"event {number} is never acked" for number in sorted(sensor.texts.keys() - sensor.acked)]
        return found if status == 0 else [*found, f"the agent ends with status {status} after the crash"]

    def kill(self, sensor: Sensor) -> None:
        """Run the agent until all events of a sensor are acked, and kill it."""
        self._start(nothing)
        sensor.send(self.agent.is_alive, TRIES_MANY)
        self.agent.end(signal.SIGKILL, END_SECONDS_MAX)
        (self.state / FLUSH_SOCKET_NAME).unlink()  # a socket cannot be copied

    def _start(self, before: Hook) -> None:
        self.agent.start(before)
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.agent.is_alive() and not ports.is_listening(self.ports.http) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def alarms(self) -> list[str]:
        """Return the lines of the log about damage, though there is none."""
        return [line for line in self.log().splitlines() if "store=damaged" in line and SUSPICION not in line]

    def log(self) -> str:
        """Return the log of all starts since the state was replaced."""
        return (self.folder / LOG_NAME).read_text(errors="replace")


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
