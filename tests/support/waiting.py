"""Waits for conditions and for counts, never for time.

A condition has a deadline. A count has none: the wait fails once the count stands still, and reports its value. So a
slow machine fails no test while there is progress, and a lost event is reported as lost, not as late (decision 27).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from simulators.services.process import Process

POLL_SECONDS = 0.01
LOOP_POLL_SECONDS = 0.001
STANDSTILL_SECONDS_MAX = 60.0
"""Longer than the product's own waits: sessions, transactions, a back-off of 30 s."""


@dataclass(slots=True)
class Progress:
    """Follows a count to its goal, up or down to 0."""

    goal: int
    what: str
    standstill_seconds: float = STANDSTILL_SECONDS_MAX
    or_more: bool = False
    """Whether a count beyond the goal is accepted."""
    _latest: tuple[int, int] | None = None
    _moved: float = 0.0

    def reached(self, count: int, now: float, work: int = 0) -> bool:
        """Whether the count is at its goal; fail where count and work stand still, or the goal is exceeded."""
        if count == self.goal or (self.or_more and count > self.goal):
            return True
        place = f"{count} of {self.goal}" if self.goal else f"{count} left"
        assert count < self.goal or not self.goal, f"too many, {place}: {self.what}"
        if (count, work) != self._latest:
            self._latest, self._moved = (count, work), now
        assert now - self._moved < self.standstill_seconds, f"stuck at {place}: {self.what}"
        return False


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait until the condition holds; fail with its description."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


def wait_for_count(count: Callable[[], int], goal: int, what: str, *, or_more: bool = False) -> None:
    """Wait until the count is at its goal; fail once it stands still or exceeds the goal."""
    progress = Progress(goal, what, or_more=or_more)
    while not progress.reached(count(), time.monotonic()):
        time.sleep(POLL_SECONDS)


def wait_for_work(
    process: Process,
    count: Callable[[], int],
    goal: int,
    what: str,
    standstill_seconds: float,
    *,
    work: Callable[[], int] = lambda: 0,
) -> None:
    """Wait until a process has moved the count to its goal or beyond; fail with its log's end, also where it ends.

    The count may stand still while another measure of the process's work, if given, changes.
    """
    try:
        progress = Progress(goal, what, standstill_seconds, or_more=True)
        while not progress.reached(count(), time.monotonic(), work()):
            process.require_alive(what)
            time.sleep(POLL_SECONDS)
    except AssertionError as error:
        error.add_note(process.log_tail())
        raise


def wait_for_end(process: Process, standstill_seconds: float) -> int:
    """Wait for a process to end by itself, and return its exit status; fail once its log stands still."""
    progress = Progress(1, "the process has ended", standstill_seconds)
    try:
        while not progress.reached(int(not process.alive), time.monotonic(), log_bytes(process)):
            time.sleep(POLL_SECONDS)
    except AssertionError as error:
        error.add_note(process.log_tail())
        raise
    return process.wait(standstill_seconds)


def log_bytes(process: Process) -> int:
    """Return the size of a process's log in bytes, which grows while the process works."""
    return process.command.log_file.stat().st_size


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait on the loop until the condition holds; fail with its description."""
    await until_count(lambda: int(condition()), 1, what)


async def until_count(count: Callable[[], int], goal: int, what: str, *, or_more: bool = False) -> None:
    """Wait on the loop until the count is at its goal; fail once it stands still or exceeds the goal."""
    progress = Progress(goal, what, or_more=or_more)
    while not progress.reached(count(), asyncio.get_running_loop().time()):  # noqa: ASYNC110 (nobody signals a counter)
        await asyncio.sleep(LOOP_POLL_SECONDS)
