"""The user's effects are made again until they succeed; tests/crashes/job kills the job around them."""

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from cloud import hooks
from cloud.errors import HookTimeError, SinkError, StopError
from cloud.job import open_effects
from cloud.runtime.repeated import RETRY_SECONDS_MAX
from cloud.stream.progress import Observer
from cloud.table.commits import Commit
from cloud.table.sink import NewRows
from tests.support.commands import run


class Memory:
    """A sink with one batch, and the progress of its effects."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.done: str | None = None

    def new_rows(self) -> NewRows | None:
        return None if self.key is None else NewRows(self.key, cast("DataFrame", None))

    def read_done(self) -> str | None:
        return self.done

    def write_done(self, key: str) -> None:
        self.done = key


def effects_of(
    call: Callable[..., Any],
    memory: Memory,
    wait: Callable[[float], bool],
    limit: float = 60.0,
    tell: Callable[[Commit], None] = lambda _: None,
) -> Callable[[], bool]:
    settings = SimpleNamespace(effects=hooks.Hook("plant:effects", lambda: call), effects_seconds_max=limit)
    stop, receipts = SimpleNamespace(wait=wait), SimpleNamespace(note_failing=tell)
    of_job: Any = settings, memory, memory, lambda: None, Observer(), stop, receipts
    effects = open_effects(*of_job)
    return partial(effects, Commit("t", "", 0, 1, "", "", {}, {}, {}))


def test_effects_that_fail_are_made_again_after_growing_delays_until_they_succeed() -> None:
    delays: list[float] = []
    memory = Memory("t-1")

    def fails(_: DataFrame, key: str) -> None:
        assert memory.done is None
        if len(delays) < 1100:
            raise OSError(key)

    def wait(seconds: float) -> bool:
        delays.append(seconds)
        return False

    effects = effects_of(fails, memory, wait)
    assert effects()
    assert delays == [1, 2, 4, 8, 16, 32, *[RETRY_SECONDS_MAX] * 1094]
    assert memory.done == "t-1"
    assert effects()  # nothing more
    assert effects_of(fails, Memory(None), lambda _: True)()  # a table without a batch
    assert len(delays) == 1100


@pytest.mark.parametrize("error", [TimeoutError("the read timed out"), SinkError("PostgreSQL: connection refused")])
def test_an_error_of_what_the_effects_call_is_made_again_whatever_its_kind(error: Exception) -> None:
    """A time-out of theirs is not that of the call, and an error of a helper's database is not the table's."""
    memory, errors = Memory("t-1"), [error]

    def fails_once(*_: object) -> None:
        if errors:
            raise errors.pop()

    assert effects_of(fails_once, memory, lambda _: False)()
    assert (errors, memory.done) == ([], "t-1")


async def sends_later(*_: object) -> None:
    """Do nothing yet; imported, or wrapped, it is found as any other function."""


def sends_when_asked(*_: object) -> Iterator[None]:
    yield


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("call", [sends_later, sends_when_asked, lambda rows, key: map(print, [key])])
def test_effects_that_have_not_begun_when_they_return_are_not_done(call: Callable[..., Any]) -> None:
    memory = Memory("t-1")
    with pytest.raises(StopError, match=r"effects plant:effects: it returns a .*, whose work has not begun"):
        effects_of(call, memory, lambda _: True)()
    assert memory.done is None
    assert effects_of(lambda *_: iter(["a cursor"]), memory, lambda _: True)()


HANGING = """
import logging, sys, threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from cloud.hooks import Hook
from cloud.runtime.outcome import exit_status
from cloud.runtime.repeated import Repeated
def hangs(rows, key):
    with ThreadPoolExecutor(1) as threads:
        threads.submit(threading.Event().wait).result()
calls = Repeated(Hook("plant:effects", lambda: hangs), 0.1, None)
sys.exit(exit_status(partial(calls.attempt, [], "t-1"), logging.getLogger("job")))
"""


def test_effects_that_hang_in_a_thread_of_their_own_do_not_keep_the_program_from_its_end() -> None:
    ended = run(sys.executable, "-c", HANGING, seconds_max=60)
    assert (ended.returncode, "plant:effects: no answer within 0.1 s" in ended.stderr) == (1, True)


def test_effects_are_not_done_when_a_stop_is_requested_or_their_time_is_over() -> None:
    memory, over = Memory("t-1"), threading.Event()
    told: list[Commit] = []

    def fails(_: DataFrame, key: str) -> None:
        raise OSError(key)

    assert not effects_of(fails, memory, lambda _: True)()
    with pytest.raises(HookTimeError, match="plant:effects: no answer within"):
        effects_of(lambda *_: over.wait(), memory, lambda _: False, 0.1, told.append)()
    over.set()
    assert (memory.done, len(told)) == (None, 1)  # the gateways know of it, too
