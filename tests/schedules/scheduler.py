"""One thread for all threads: a seeded scheduler of greenlets, with virtual time (decision 73)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Final

from greenlet import getcurrent, greenlet

STEP_SECONDS: Final = 20e-6
"""The time that each step takes."""
SLOW_SHARE: Final = 0.2
"""Share of the threads that are slow."""
SLOW_PASSES: Final = 0.9
"""Share of the choices in which a slow thread lets another one run."""
ALONE_STEPS_MAX: Final = 64
"""How many steps a thread makes at most without the scheduler while no other one can run."""
CHECKED_STEPS: Final = 16
"""How many steps are made between two looks at what ends a run."""
HASHED_LINES: Final = 1_000
"""How many lines of a trace are hashed at once."""

Run = Callable[[], None]


@dataclass(slots=True, eq=False)
class Process:
    """Threads that are killed together."""

    name: str
    alive: bool = True
    is_killed: bool = False
    kill_after: int | None = None
    """How many more of its steps run before it is killed."""
    killed: Run = lambda: None
    """Called in the step in which it is killed."""
    failure: BaseException | None = None
    """The error that a thread ended with."""


@dataclass(slots=True, eq=False)
class Task:
    """A thread."""

    name: str
    process: Process
    thread: greenlet
    slow: bool
    parked: bool = False
    woken: bool = False
    waits: int = 0
    """Number of the present wait, so that an old timer ends no later one."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop that runs in it."""
    point: str = "begins"
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Call:
    """A step without a thread, such as an answer that arrives."""

    name: str
    run: Run


class Scheduler:
    """Chooses at each step which thread runs until its next switch point."""

    def __init__(self, seed: int, keep: Callable[[str], None] | None = None) -> None:
        self.random = Random(f"schedule {seed}")
        self.now = 0.0
        """Virtual time in seconds."""
        self.steps = 0
        self._keep = keep
        self._digest = blake2b(digest_size=8)
        self._lines: list[str] = []
        """Those that are not in the digest yet."""
        self._ready: list[Task | _Call] = []
        self._timers: list[tuple[float, int, Task | _Call, int]] = []
        self._timer_number = 0
        self.running: Task | None = None
        """The thread that runs; None in a step without one."""
        self._hub = getcurrent()

    @property
    def digest(self) -> str:
        """The hash of all steps so far."""
        digest = self._digest.copy()
        digest.update("\n".join([*self._lines, repr(self.now)]).encode())
        return digest.hexdigest()

    def spawn(self, process: Process, name: str, run: Run) -> Task:
        """Begin a thread."""
        thread = greenlet(lambda: self._run(task, run), self._hub)
        task = Task(f"{process.name}/{name}", process, thread, self.random.random() < SLOW_SHARE)
        self._ready.append(task)
        return task

    def call(self, seconds: float, name: str, run: Run) -> None:
        """Run a step after some time, in no thread; it must not wait."""
        self._add_timer(self.now + seconds, _Call(name, run), 0)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._lines.append(text)
        if len(self._lines) >= HASHED_LINES:
            self._digest.update("\n".join([*self._lines, repr(self.now)]).encode())
            self._lines.clear()
        if self._keep is not None:
            self._keep(f"{self.now:.6f} {text}")

    def pause(self, point: str) -> None:
        """Run other threads first."""
        task = self.running
        if task is None:
            return
        task.point = point
        if not self._runs_on(task):
            self._ready.append(task)
            self._hub.switch()

    def _runs_on(self, task: Task) -> bool:
        """Make the running thread's step here where it is the only one that can; the step is the one of `_step`."""
        if self._ready or (self._timers and self._timers[0][0] <= self.now):
            return False
        if task.process.kill_after is not None or not self.steps % ALONE_STEPS_MAX:
            return False
        self.random.random()
        self.steps += 1
        self.now += STEP_SECONDS
        self.note(f"{task.name} {task.point}")
        return True

    def wait(self, seconds: float | None, point: str) -> bool:
        """Wait until woken; return False where the time is over first."""
        task = self.running
        if task is None:
            raise RuntimeError(f"{point}: a step without a thread cannot wait")
        task.parked, task.woken, task.point = True, False, point
        task.waits += 1
        if seconds is not None:
            self._add_timer(self.now + max(0.0, seconds), task, task.waits)
        self._hub.switch()
        return task.woken

    def wake(self, task: Task) -> None:
        """End a thread's wait."""
        if task.parked:
            task.parked, task.woken = False, True
            self._ready.append(task)

    def kill(self, process: Process) -> None:
        """End a process: none of its threads ever runs again, not even its `finally` blocks."""
        process.alive, process.is_killed = False, True
        self.note(f"{process.name} killed")
        process.killed()

    def run(self, until: Callable[[], bool], steps_max: int) -> bool:
        """Run steps until a condition holds, which is checked each CHECKED_STEPS; return False where it never does."""
        while not until():
            for _ in range(CHECKED_STEPS):
                if self.steps >= steps_max or not self._step():
                    return until()
        return True

    def _step(self) -> bool:
        while self._timers and self._timers[0][0] <= self.now:
            self._fire()
        if not self._ready:
            if not self._timers:
                return False
            self.now = self._timers[0][0]
            return True
        item = self._choose()
        self.steps += 1
        self.now += STEP_SECONDS
        if isinstance(item, _Call):
            self.note(item.name)
            item.run()
            return True
        process = item.process
        if not process.alive:
            return True
        if process.kill_after is not None:
            process.kill_after -= 1
            if process.kill_after < 0:
                process.kill_after = None
                self.kill(process)
                return True
        self.note(f"{item.name} {item.point}")
        self.running = item
        if item.loop is not None:
            asyncio._set_running_loop(item.loop)
        item.thread.switch()
        if item.loop is not None:
            asyncio._set_running_loop(None)
        self.running = None
        return True

    def _choose(self) -> Task | _Call:
        ready, random = self._ready, self.random
        place = int(random.random() * len(ready))
        item = ready[place]
        if len(ready) > 1 and isinstance(item, Task) and item.slow and random.random() < SLOW_PASSES:
            place = int(random.random() * len(ready))
            item = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        return item

    def _fire(self) -> None:
        _, _, item, wait = heappop(self._timers)
        if isinstance(item, _Call):
            self._ready.append(item)
        elif item.parked and item.waits == wait:
            item.parked = False
            self._ready.append(item)

    def _run(self, task: Task, run: Run) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001  # the top of the thread
            task.process.failure = error
            self.note(f"{task.name} failed: {error!r}")
        task.ended = True
        self.note(f"{task.name} ends")

    def _add_timer(self, at: float, item: Task | _Call, wait: int) -> None:
        self._timer_number += 1
        heappush(self._timers, (at, self._timer_number, item, wait))
