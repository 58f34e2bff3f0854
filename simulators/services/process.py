"""A child process with a log file, whose session is always cleaned up."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from simulators.services import ports, session
from simulators.services.error import ServiceError, ServiceTimeoutError

POLL_SECONDS = 0.02
START_SECONDS_MAX = 180.0
TERMINATE_SECONDS_MAX = 20.0
LOG_TAIL_LINES = 25
_LOG_TAIL_BYTES = 16_384
# The first line names the group, the second releases it. End of file instead means that this process has ended.
_SCRIPT = 'read -r group || exit 0; read -r done || kill -s KILL -- "-$group"'


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name in messages, the arguments, the log file, the working folder."""

    name: str
    arguments: tuple[str, ...]
    log_file: Path
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to the environment of this process."""


class Process:
    """One child process with all of its children, in a session of its own that never outlives this process.

    It may be started again after it has ended; the log continues in the same file.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.terminate()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        """The child's pid, which is also its process group and session id."""
        if self._child is None:
            raise ServiceError(f"{self.command.name}: not started yet")
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the child runs or is paused."""
        return self._child is not None and self._child.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The child's exit status, negative for a signal; None while it runs."""
        return None if self._child is None else self._child.poll()

    def start(self) -> None:
        """Start the child; raise ServiceError where it still runs."""
        if self.alive:
            raise ServiceError(f"{self.command.name}: runs already, pid={self.pid}")
        self._clear_away()
        log_file = self.command.log_file
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        self._guard = Guard()
        try:
            self._child = self._spawn(log_file)
        except OSError as error:
            self._guard.release()
            raise ServiceError(f"{self.command.name}: cannot start {self.command.arguments[0]}: {error}") from error
        self._guard.watch(self._child.pid)

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        seconds: float = START_SECONDS_MAX,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Wait until the condition holds; raise ServiceError with the log's end where the child ends or time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.require_alive(what)
            if time.monotonic() > deadline:
                raise ServiceTimeoutError(self._message(f"not within {seconds:g} s: {what}"))
            time.sleep(poll_seconds)

    def require_alive(self, what: str) -> None:
        """Raise ServiceError with the log's end where the child has ended."""
        if not self.alive:
            raise ServiceError(self._message(f"ended with status {self.exit_status} before {what}"))

    def wait_for_log(self, text: str, seconds: float = START_SECONDS_MAX) -> None:
        """Wait until the child's log since its latest start contains the text."""
        self.wait_until(lambda: text in self.log(), f"{text!r} in the log", seconds)

    def wait_for_port(self, port: int, seconds: float = START_SECONDS_MAX) -> None:
        """Wait until something accepts connections on this port of 127.0.0.1."""
        self.wait_until(lambda: ports.is_listening(port), f"listens on port {port}", seconds)

    def wait(self, seconds: float) -> int:
        """Wait for the child to end by itself, and return its exit status."""
        if self._child is None:
            raise ServiceError(f"{self.command.name}: not started yet")
        try:
            status = self._child.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise ServiceTimeoutError(self._message(f"has not ended within {seconds:g} s")) from error
        self._clear_away()
        return status

    def request_end(self) -> None:
        """Ask the child to end (SIGTERM), resuming it if paused, and return at once."""
        if self._child is not None and self.alive:
            self.resume()
            self._child.terminate()

    def terminate(self, seconds: float = TERMINATE_SECONDS_MAX) -> int | None:
        """Ask the child to end (SIGTERM), kill it after `seconds`, and return its exit status."""
        if self._child is None:
            return None
        if self.alive:
            self.request_end()
            try:
                self._child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                session.kill(self.pid)
        self._clear_away()
        return self.exit_status

    def kill(self) -> None:
        """Kill the child and all of its children (SIGKILL); return once none is left."""
        self._clear_away()

    def pause(self) -> None:
        """Pause the child and its children (SIGSTOP); return once they are stopped."""
        session.stop(self.pid)

    def resume(self) -> None:
        """Resume the child and its children (SIGCONT)."""
        session.send(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Return the child's log since its latest start."""
        try:
            with self.command.log_file.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def rotate_log(self) -> None:
        """Move what the log has so far to the end of another file beside it; the child continues in the empty one."""
        log_file = self.command.log_file
        with log_file.open("r+b") as log, log_file.with_suffix(".old.log").open("ab") as older:
            shutil.copyfileobj(log, older)
            log.truncate(0)
        self._log_start = 0

    def log_tail(self) -> str:
        """Return the end of the child's log since its latest start, with the file's name."""
        lines = self.log()[-_LOG_TAIL_BYTES:].splitlines()[-LOG_TAIL_LINES:]
        tail = "\n  ".join(lines) if lines else "(empty)"
        return f"the end of {self.command.log_file}:\n  {tail}"

    def _spawn(self, log_file: Path) -> subprocess.Popen[bytes]:
        with log_file.open("ab") as log:
            return subprocess.Popen(
                self.command.arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.command.folder,
                env={**os.environ, **self.command.environment},
                start_new_session=True,
            )

    def _clear_away(self) -> None:
        """Kill the rest of the latest child's session, and release its guard."""
        if self._guard is None or self._child is None:
            return
        session.kill(self._child.pid)
        self._child.wait()
        self._guard.release()
        self._guard = None

    def _message(self, what: str) -> str:
        return f"{self.command.name}: {what}; {self.log_tail()}"


class Guard:
    """Kills a child's process group when this process ends, even by SIGKILL.

    PR_SET_PDEATHSIG fires at the end of the starting thread, and reaches only the child, not its children. Instead a
    small shell reads from a pipe whose other end only this process holds (decision 2).
    """

    def __init__(self) -> None:
        """Start the guard before the child, to keep the unguarded moment short."""
        # In a session of its own, so that Ctrl-C does not end it.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT], stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )

    def watch(self, group: int) -> None:
        """Set the process group that must not outlive this process."""
        self._write(f"{group}\n")

    def release(self) -> None:
        """End the guard without killing the group; a second call does nothing."""
        self._write("done\n")
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait()

    def _write(self, line: str) -> None:
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        try:
            self._shell.stdin.write(line)
        except BrokenPipeError:
            return  # the shell has already ended
