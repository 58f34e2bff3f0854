"""The user's effects: each new row once under one key, whatever ends the job between two steps."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from agent.forward.receipts.group_offsets import read_receipt
from cloud import hooks
from cloud.errors import HookTimeError, JobError, SinkError, StopError
from cloud.runtime.repeated import RETRY_SECONDS_MAX, Repeated
from cloud.runtime.shutdown import StopRequest
from cloud.stream.batch import BatchWriter
from cloud.stream.checkpoint import Checkpoint
from cloud.stream.effects import Effects
from cloud.stream.progress import Observer
from cloud.stream.receipts import Receipts
from cloud.table.commits import Commit
from cloud.table.sink import NewRows
from tests.cloud.gateway import Gateway, Record, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

EVENTS = 3
MODULE = """
from pyspark.sql import functions as F
CALLS = []
def transform(rows):
    numbered = rows.withColumn("n", F.col("id").cast("int"))
    return numbered.withColumn("reject", F.when(F.col("n") % 10 == 9, "nine"))
def effects(rows, key):
    CALLS.append((key, sorted((row["n"], row["type"], row["data"]) for row in rows.collect())))
"""


class KilledError(JobError):
    """Ends a job at a step, as a kill does for all that comes after it."""


@dataclass(slots=True)
class EffectsSide:
    """A topic, its table, and what writes it, in the test's own process."""

    side: Any
    """A `CloudSide` or a `ConsumerSide`."""
    consume: Callable[[Callable[[], bool]], None]
    """Reads until the condition holds."""
    gateway: Gateway = field(default_factory=Gateway)
    sent: list[int] = field(default_factory=list)
    """By offset the number of the event."""
    first: Record | None = None

    def run(self) -> None:
        """Send new events, the first one again, and one that is rejected; read until all are receipted."""
        start = 10 * (len(self.sent) // (EVENTS + 2))
        *new, rejected = self.gateway.records([*readings(EVENTS, start=start), *readings(1, start=start + 9)])
        self.first = self.first or new[0]
        self.side.send([*new, self.first, rejected], 0)
        self.sent += [*range(start, start + EVENTS), 0, start + 9]
        self.consume(lambda: self.side.receipted() == len(self.sent))

    def wrong(self) -> list[str]:
        """Return what is wrong with the effects, of which whoever stores the key keeps the first call of each."""
        calls: list[tuple[str, list[tuple[Any, ...]]]] = sys.modules["plant"].CALLS
        kept = dict(calls)
        wrong = [f"{key} has had other rows before" for key, rows in calls if rows != kept[key]]
        order = list(dict.fromkeys(key for key, _ in calls))
        places = [order.index(key) for key, _ in calls]
        wrong += ["a batch came again after a later one" for one, other in pairwise(places) if other < one]
        made = Counter(number for rows in kept.values() for number, *_ in rows)
        due = {number for number in self.sent[: self.side.receipted()] if number % 10 != 9}
        wrong += [f"{number} is receipted and has no effect" for number in sorted(due - made.keys())]
        too_many = {number: count for number, count in made.items() if count > 1 or number % 10 == 9}
        return wrong + [f"{number} has {count} effects" for number, count in too_many.items()]

    def check(self, kills: Iterable[Callable[[], Any]]) -> None:
        """Run once for each of the kills."""
        for kill in kills:
            with kill(), pytest.raises(KilledError):
                self.run()
            assert self.wrong() == []

    def check_mutant(self, kind: type, name: str, mutant: Callable[..., Any]) -> None:
        """Check that a method in place of the product's own is revealed where the effects end the process."""
        self.run()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, name, mutant)
            patch.setattr("cloud.runtime.repeated.within", die)
            with pytest.raises(KilledError):
                self.run()
        if not any("is receipted and has no effect" in one for one in self.wrong()):
            self.run()
        assert any("is receipted and has no effect" in one for one in self.wrong())


@contextmanager
def plant(folder: Path, module: str) -> Iterator[None]:
    """Have the functions of a job in its folder."""
    (folder / "plant.py").write_text(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        yield
    sys.modules.pop("plant", None)


@contextmanager
def killed(kind: type, name: str, *, call: int = 1, after: bool = False) -> Iterator[None]:
    """Kill the job at the given call of a method, before or after it does its work."""
    method, calls = getattr(kind, name), iter(range(1, 1000))

    def work(*arguments: Any, **named: Any) -> Any:
        is_it = next(calls) == call
        if is_it and not after:
            raise KilledError(name)
        done = method(*arguments, **named)
        if is_it:
            raise KilledError(name)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, work)
        yield


@pytest.fixture
def effects_side(spark: SparkSession, cloud: CloudSide) -> Iterator[EffectsSide]:
    def consume(is_done: Callable[[], bool]) -> None:
        stop = StopRequest()

        class Until(Observer):
            def receipted(self, batch: int) -> None:
                if is_done():
                    stop.set()

        cloud.run_here(spark, Until(), stop, "--transform", "plant:transform", "--effects", "plant:effects")

    with plant(cloud.folder, MODULE):
        yield EffectsSide(cloud, consume)


KILLS: list[Callable[[], Any]] = [
    partial(killed, Effects, "__call__", call=2),
    partial(killed, Repeated, "attempt"),
    partial(killed, Repeated, "attempt", after=True),
    partial(killed, Checkpoint, "write_done"),
    partial(killed, Checkpoint, "write_done", after=True),
    partial(killed, Receipts, "commit", call=2),
]


@pytest.mark.guarantee(5)
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_each_new_row_has_its_effect_once_wherever_the_job_is_killed(effects_side: EffectsSide) -> None:
    effects_side.check(KILLS)
    with killed(Repeated, "attempt", after=True), pytest.raises(KilledError):
        effects_side.run()
    effects_side.side.remove_checkpoint()  # the table is taken over
    effects_side.run()
    assert effects_side.wrong() == []
    assert effects_side.side.receipted() == len(effects_side.sent)


@pytest.mark.guarantee(5)
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("mutant", ["receipt", "progress"])
def test_a_receipt_or_the_progress_before_the_effect_is_revealed(effects_side: EffectsSide, mutant: str) -> None:
    write = BatchWriter._write

    def receipt_first(self: BatchWriter, *arguments: Any) -> Any:
        last = write(self, *arguments)
        self._receipts.commit(last)
        return last

    def progress_first(self: Effects, commit: Commit) -> bool:
        if (new := self._sink.new_rows()) is not None and new.key != self._checkpoint.read_done():
            self._checkpoint.write_done(new.key)
            self._calls.attempt(new.rows, new.key)
        return True

    if mutant == "receipt":
        effects_side.check_mutant(BatchWriter, "_write", receipt_first)
    else:
        effects_side.check_mutant(Effects, "__call__", progress_first)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_while_effects_fail_the_last_receipts_say_so_and_do_not_move(effects_side: EffectsSide) -> None:
    """Also where there is no receipt yet, and at a start."""
    make, told = Repeated.attempt, []

    def receipts() -> dict[int, tuple[int, int | None]]:
        read = [(one, read_receipt(one)) for one in effects_side.side.receipts()]
        return {one.partition: (one.offset, receipt.failing_since) for one, receipt in read if receipt is not None}

    def fail_twice(self: Repeated, rows: object, key: str) -> float | None:
        told.append(receipts())
        return 0.01 if len(told) % 3 else make(self, rows, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repeated, "attempt", fail_twice)
        effects_side.run()
        with killed(Checkpoint, "write_done"), pytest.raises(KilledError):
            effects_side.run()
        effects_side.run()
    since = [failing for seen in told for _, failing in seen.values()][::3]
    assert [{partition: offset for partition, (offset, _) in seen.items()} for seen in told] == [
        *({}, *[dict.fromkeys(range(3), 0)] * 2),
        *[{0: EVENTS + 2, 1: 0, 2: 0}] * 6,
        *[{0: 2 * (EVENTS + 2), 1: 0, 2: 0}] * 3,
    ]
    assert since[0] == since[1] != since[2] is None
    assert since[3] == since[4] == since[5] == since[6] == since[7] is not None  # killed, and kept
    assert receipts() == {0: (3 * (EVENTS + 2), None), 1: (0, None), 2: (0, None)}
    assert effects_side.wrong() == []


def die(*_: object) -> None:
    raise KilledError("in the effects")


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
    hook = hooks.Hook("plant:effects", lambda: call)
    checkpoint = cast("Checkpoint", memory)
    effects = Effects(Repeated(hook, limit, Observer()), memory, checkpoint, lambda: None, wait, tell)
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
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, check=False, timeout=60)
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
