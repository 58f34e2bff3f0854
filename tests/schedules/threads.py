"""The parts of `threading`, `time`, `queue` and `concurrent.futures` that the product uses, as switch points."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar

from tests.schedules.scheduler import Process, Scheduler, Task

T = TypeVar("T")


class _Waiters:
    """The threads that wait for one thing, in the order of their waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks: list[Task] = []

    def wait(self, seconds: float | None, point: str) -> bool:
        task = self._scheduler.running
        if task is None:
            raise RuntimeError(f"{point}: no thread waits here")
        self._tasks.append(task)
        self._scheduler.wait(seconds, point)
        if task not in self._tasks:  # woken, if only after its time was over
            return True
        self._tasks.remove(task)
        return False

    def wake(self, count: int | None = None) -> None:
        woken, self._tasks = self._tasks[:count], [] if count is None else self._tasks[count:]
        for task in woken:
            self._scheduler.wake(task)


class Event:
    """As threading.Event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters = _Waiters(scheduler)
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        self._waiters.wake()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._flag:
            self._scheduler.pause("event")
        else:
            self._waiters.wait(timeout, "event")
        return self._flag


class Lock:
    """As threading.RLock, and so as threading.Lock, for whoever does not rely on its deadlock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters = _Waiters(scheduler)
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self) -> bool:
        task = self._scheduler.running
        if task is not None and self._owner is not task:
            self._scheduler.pause("lock")
            while self._owner is not None:
                self._waiters.wait(None, "locked")
            self._owner = task
        elif task is None and self._owner is not None:
            raise RuntimeError("a step without a thread cannot wait for a lock")
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._waiters.wake(1)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release it for the block, however often it was taken."""
        depth, self._depth = self._depth, 1
        self.release()
        try:
            yield
        finally:
            self.acquire()
            self._depth = depth


class Condition:
    """As threading.Condition."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self._waiters = _Waiters(scheduler)

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        end = None if timeout is None else self._scheduler.now + timeout
        while not (found := predicate()):
            left = None if end is None else end - self._scheduler.now
            if left is not None and left <= 0:
                break
            with self._lock.released():
                self._waiters.wait(left, "condition")
        return found

    def notify_all(self) -> None:
        self._waiters.wake()


class Thread:
    """As threading.Thread; it belongs to the process that makes it."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], object], name: str = "thread", **_: object) -> None:
        assert scheduler.running is not None
        self.name = name
        self._scheduler = scheduler
        self._process: Process = scheduler.running.process
        self._target = target
        self._task: Task | None = None
        self._waiters = _Waiters(scheduler)

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._process, self.name, self._to_end)
        self._scheduler.pause("start")

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self) -> None:
        while self.is_alive():
            self._waiters.wait(None, "join")

    def _to_end(self) -> None:
        try:
            self._target()
        finally:
            assert self._task is not None
            self._task.ended = True
            self._waiters.wake()


class Queue(Generic[T]):
    """As queue.SimpleQueue."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[T] = deque()
        self._waiters = _Waiters(scheduler)

    def qsize(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        self._items.append(item)
        self._waiters.wake(1)
        self._scheduler.pause("put")

    def get(self, timeout: float | None = None) -> T:
        self._scheduler.pause("get")
        end = None if timeout is None else self._scheduler.now + timeout
        while not self._items:
            left = None if end is None else end - self._scheduler.now
            if left is not None and left <= 0:
                raise Empty
            self._waiters.wait(left, "queue")
        return self._items.popleft()

    def get_nowait(self) -> T:
        if not self._items:
            raise Empty
        return self._items.popleft()


class Answer(Future[T]):
    """As its base, with a wait that is a switch point; the first answer counts."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._switched = _Waiters(scheduler)
        self.add_done_callback(lambda _: self._switched.wake())

    def set_result(self, result: T) -> None:
        if not self.done():
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        if not self.done():
            super().set_exception(exception)

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self._switched.wait(timeout, "answer")
        return super().result(0)


def void(_: object) -> None:
    """Discard a value."""


def threading_of(scheduler: Scheduler) -> SimpleNamespace:
    """Return what stands for the module threading."""
    kinds: dict[str, Callable[..., Any]] = {"Event": Event, "Lock": Lock, "Condition": Condition, "Thread": Thread}
    made = {name: partial(kind, scheduler) for name, kind in kinds.items()}
    return SimpleNamespace(**made, get_native_id=lambda: 0)


def time_of(scheduler: Scheduler, start_ms: int) -> SimpleNamespace:
    """Return what stands for the module time: the monotonic clock is virtual, and so is the wall clock."""
    return SimpleNamespace(
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
        monotonic=lambda: scheduler.now,
        time=lambda: start_ms / 1000 + scheduler.now,
        sleep=lambda seconds: void(scheduler.wait(seconds, "sleep")),
    )
