"""The processes of the consumer that is judged, started, killed, and started again."""

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulators.certify.gateways import Target
from simulators.errors import RunError, SimulatorError
from simulators.services.process import Command, Process

TERMINATE_SECONDS_MAX = 60.0
ENDS_MAX = 3
"""How often in a row it may end by itself without a receipt."""
_PAUSE_SECONDS = 1.0
"""Before it is started again, as a supervisor does."""


class CommandError(SimulatorError):
    """The command cannot be started at all."""


def check_command(command: Sequence[str]) -> None:
    """Raise CommandError where there is no such program."""
    program = command[0]
    if shutil.which(program) is None:
        hint = f"; give its words one by one, or: -- sh -c {program!r}" if " " in program else ""
        raise CommandError(f"{program!r}: no such program{hint}")


class Members:
    """The instances of one consumer, of which a supervisor starts again what has ended by itself."""

    def __init__(self, command: Sequence[str], target: Target, folder: Path) -> None:
        self._command = command
        self._target = target
        self._folder = folder
        self._processes: dict[int, Process] = {}
        self._running: set[int] = set()
        """The instances that should run."""
        self._lock = threading.RLock()
        self._is_armed = False
        self.ends: list[int] = []
        """The exit statuses of those that have ended by themselves."""
        self._ends_in_a_row = 0
        self.kills = 0
        self.is_supervised = True

    def start(self, instance: int = 1) -> None:
        """Start an instance."""
        values = {
            "bootstrap_servers": self._target.bootstrap_servers,
            "topic": self._target.topic,
            "group": self._target.topic,
            "instance": str(instance),
        }
        words = []
        for word in self._command:
            for name, value in values.items():
                word = word.replace(f"{{{name}}}", value)  # noqa: PLW2901  # other braces are the command's own
            words.append(word)
        environment = {f"ONCEGATE_{name.upper()}": value for name, value in values.items()}
        log = self._folder / f"{self._target.topic}-{instance}.log"
        with self._lock:
            if instance not in self._processes:
                command = Command("the command", tuple(words), log, None, environment)
                self._processes[instance] = Process(command)
            self._processes[instance].start()
            self._running.add(instance)

    def kill(self, instance: int | None = None) -> None:
        """Kill an instance, or all, with all of their children."""
        with self._lock:
            for number in [instance] if instance is not None else list(self._processes):
                self._running.discard(number)
                self.kills += self._processes[number].alive
                self._processes[number].kill()
            self._is_armed = False

    def stop(self, instance: int) -> int | None:
        """End an instance by SIGTERM, and return its exit status; one that does not end in time is killed."""
        with self._lock:
            self._running.discard(instance)
        return self._processes[instance].terminate(TERMINATE_SECONDS_MAX)

    def arm(self) -> None:
        """Have all instances killed directly after the next receipt."""
        with self._lock:
            self._is_armed = True

    @property
    def is_down(self) -> bool:
        """Whether no instance should run."""
        return not self._running

    def received(self) -> None:
        """Note that a receipt has come, which is the moment to kill if that was asked for."""
        with self._lock:
            self._ends_in_a_row = 0
            if self._is_armed:
                self.kill()

    @contextmanager
    def still(self, *, paused: bool) -> Iterator[None]:
        """Keep the instances from being started and killed for the block; paused, they do nothing at all."""
        with self._lock:
            alive = [self._processes[number] for number in self._running if self._processes[number].alive]
            for process in alive if paused else ():
                process.pause()
            try:
                yield
            finally:
                for process in alive if paused else ():
                    process.resume()

    def tend(self) -> None:
        """Start again what has ended by itself; raise RunError where it does so again and again."""
        with self._lock:
            ended = [number for number in self._running if not self._processes[number].alive]
            for number in ended:
                process = self._processes[number]
                self.ends.append(process.exit_status or 0)
                self._ends_in_a_row += 1
                self._running.discard(number)
                if not self.is_supervised:
                    continue
                if self._ends_in_a_row >= ENDS_MAX:
                    raise RunError(
                        f"the command ended with status {process.exit_status}, {ENDS_MAX} times without a receipt in "
                        f"between; {process.log_tail()}"
                    )
                time.sleep(_PAUSE_SECONDS)
                self.start(number)
