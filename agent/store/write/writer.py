"""The one thread that writes: each commit takes all that was queued during the previous flush."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from agent.store.port import Submission

log = logging.getLogger(__name__)

GATHER_SUBMISSIONS: Final = 8
"""With as many submissions in one commit, many are sending at once: the next commit waits to gather as many."""
GATHER_SECONDS: Final = 0.002
"""How long it waits. A commit costs as much as dozens of events, and meanwhile the loop's thread fills the queue."""

T = TypeVar("T")
Task = Callable[[], object]
"""Work on the store that is not a submission; runs on the writer's thread, between commits."""


class Writer:
    """A thread and its queue.

    `commit` stores a group of submissions; `maintain` does what is due and returns the seconds until it is due again.
    """

    def __init__(
        self,
        commit: Callable[[list[Submission]], None],
        maintain: Callable[[], float | None],
        failed: Callable[[BaseException], None],
        *,
        events_max: int,
        delay_seconds: float,
    ) -> None:
        self._commit = commit
        self._maintain = maintain
        self._failed = failed
        self._events_max = events_max
        self._delay_seconds = delay_seconds
        self._queue: SimpleQueue[Submission | Task | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._is_gathering = False
        self.failure: BaseException | None = None
        """The error that ended the thread, where no end was requested."""

    def start(self) -> None:
        self._worker.start()

    def put(self, work: Submission | Task) -> None:
        """Queue a submission or a task; never blocks."""
        self._queue.put(work)

    def wake(self) -> None:
        """Cause a cycle, which writes pending marks."""
        self._queue.put(do_nothing)

    def call(self, task: Callable[[], T]) -> T:
        """Run a task on the thread and wait for it; return its result, or raise its error."""
        # Not a Future, of whose lock the schedules (docs/verification.md) know nothing (decision 73).
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(task())
            except Exception as error:  # noqa: BLE001  # handed to the caller below
                errors.append(error)
            finally:
                done.set()

        self._queue.put(run)
        while not done.wait(1.0):
            if not self._worker.is_alive():
                raise RuntimeError("the store's writer has ended") from self.failure
        if errors:
            raise errors[0]
        return results[0]

    def finish(self) -> None:
        """Commit the queued submissions, then end the thread."""
        self._queue.put(None)
        self._worker.join()

    def _run(self) -> None:
        _show_name(self._worker.name)
        try:
            while self._run_once():
                pass
        except Exception as error:  # noqa: BLE001  # the top of the thread
            self.failure = error
            self._failed(error)

    def _run_once(self) -> bool:
        """Commit one group; return False once the end of the thread is requested."""
        pause = self._maintain()
        try:
            work = self._queue.get(timeout=pause)
        except Empty:
            return True
        if self._is_gathering and self._queue.qsize() < GATHER_SUBMISSIONS:
            time.sleep(GATHER_SECONDS)
        group: list[Submission] = []
        events = 0
        deadline = time.monotonic() + self._delay_seconds if self._delay_seconds else 0.0
        while work is not None:
            if isinstance(work, Submission):
                group.append(work)
                events += len(work.candidates)
            else:
                if group:
                    self._commit(group)
                group, events = [], 0
                work()
            if events >= self._events_max:
                break
            try:
                remaining = deadline - time.monotonic() if deadline else 0.0
                work = self._queue.get(timeout=remaining) if remaining > 0 else self._queue.get_nowait()
            except Empty:
                break
        self._is_gathering = len(group) >= GATHER_SUBMISSIONS
        if group:
            self._commit(group)
        return work is not None


def do_nothing() -> None:
    """Do nothing: for a caller that needs only a cycle of the writer."""


def _show_name(name: str) -> None:
    """Show a thread's name in top(1), ps(1) and /proc, where Python does not set it."""
    try:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    except OSError as error:
        log.debug("thread=unnamed reason=%r", str(error))
