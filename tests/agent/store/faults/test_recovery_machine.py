"""A state machine of failures: commits that fail at any step, kills, damage, salvages and readers, in any order."""

import asyncio
import logging
import shutil
import sqlite3
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, closing
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agent.store.files import swap
from agent.store.format.packing import unpack_readable
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from agent.store.read.events import Epochs, labelled
from agent.store.schema import database
from contract.event import Event, Label
from contract.fingerprint import fingerprint
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.sections import Witness
from tests.agent.store.stores import (
    HandClock,
    accept,
    crash_image,
    document,
    lost_labels,
    make_store,
    mark_processed,
    rows,
    which_are_known,
)

T = TypeVar("T")

MEMORY_FILES = Path("/dev/shm")
SIZES = (10, 300, 3_000, 20_000)
SEGMENT_EVENTS = 16
STEPS = ("fail", "send", "fail", "send again", "fail", "kill", "damage", "process", "reader", "restart", "take log")
TAKE_LOG = st.sampled_from(["remove", "make anew", "empty", "overwrite"])
DISK = FailingDisk()
LOG = f"{FILE_NAME}-wal"
FILES = st.sampled_from([("-wal",), ("",), ("", "-wal")])
TIMES = st.sampled_from([1, 2, 1 << 30])
FAULTS = st.one_of(
    st.builds(Fault, st.just(Operation.FLUSH), st.just(Error.BROKEN), st.just(("-wal",))),
    st.builds(Fault, st.just(Operation.FLUSH), st.just(Error.BROKEN), st.just(("-wal",))),
    st.builds(Fault, st.just(Operation.FLUSH), st.just(Error.BROKEN), FILES, st.integers(0, 2), TIMES),
    st.builds(Fault, st.just(Operation.WRITE), st.sampled_from(Error), FILES, st.integers(0, 80), TIMES),
    st.builds(Fault, st.just(Operation.TRUNCATE), st.just(Error.BROKEN), FILES, st.integers(0, 1), TIMES),
)


class RecoveryMachine(RuleBasedStateMachine):
    """The model: which events were acked, which are stored without an ack, and every label assigned so far."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.root = Path(tempfile.mkdtemp(prefix="recovery-", dir=MEMORY_FILES if MEMORY_FILES.is_dir() else None))
        self.patch = pytest.MonkeyPatch()
        DISK.below(self.patch)
        self.folders = 0
        self.folder = self.root / "0"
        self.clock = HandClock()
        self.runner = asyncio.Runner()
        self.sent: dict[int, Event] = {}
        self.acked: set[int] = set()
        self.processed: set[int] = set()
        """Ids of processed events, which may be purged; their loss is not counted here."""
        self.labels: dict[Label, bytes] = {}
        self.witness = Witness()
        self.reader: sqlite3.Connection | None = None
        self.older_log = b""
        self.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def start(self) -> None:
        async def start() -> None:
            self.stack = AsyncExitStack()
            store = make_store(
                self.folder,
                self.clock,
                connect=DISK.connect,
                keep_processed_seconds=0,
                segment_events=SEGMENT_EVENTS,
            )
            self.store = await self.stack.enter_async_context(store)

        self.run(start())

    def teardown(self) -> None:
        DISK.fault = None
        self.close_reader()
        self.run(self.stack.aclose())
        self.runner.close()
        self.patch.undo()
        shutil.rmtree(self.root)
        logging.disable(logging.NOTSET)

    @rule(data=st.data(), step=st.sampled_from(STEPS))
    def do(self, data: st.DataObject, step: str) -> None:
        """Draw the next step; a single rule, so that no example is without failures."""
        match step:
            case "send":
                assert self.post(data.draw(st.integers(1, 5)), data.draw(st.sampled_from(SIZES)))
            case "fail":
                self.draw_failure(data)
            case "send again" if self.sent:
                self.send_again(data.draw(st.sampled_from(sorted(self.sent))))
            case "process":
                self.forward_and_process(data.draw(st.none() | FAULTS))
            case "reader":
                self.close_reader() if self.reader is not None else self.open_reader()
            case "restart":
                self.close_reader()  # the orderly end would wait for it
                self.run(self.stack.aclose())
                self.start()
            case "take log":
                faults = st.none() | st.builds(Fault, st.just(Operation.FLUSH), st.just(Error.BROKEN))
                self.take_log_away(data.draw(TAKE_LOG), data.draw(faults))
            case "kill":
                self.kill(reads=data.draw(st.booleans()), salvaged=data.draw(st.booleans()))
            case "damage":
                name = data.draw(st.sampled_from([FILE_NAME, LOG]))
                self.kill_and_damage(name, Random(data.draw(st.integers(0, 1 << 32))), cut=data.draw(st.booleans()))

    def draw_failure(self, data: st.DataObject) -> None:
        sizes = data.draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4))
        self.fail(sizes, data.draw(FAULTS), acked_after=data.draw(st.sampled_from([True, True, False])))
        if ends := data.draw(st.sampled_from(["", "killed", "salvaged"])):
            self.kill(reads=False, salvaged=ends == "salvaged")

    def fail(self, sizes: list[int], fault: Fault, *, acked_after: bool) -> None:
        with DISK.failing(fault):
            for size in sorted(sizes, reverse=True):
                self.post(2, size)
        if acked_after:
            assert self.post(1, SIZES[0])

    def send_again(self, number: int) -> None:
        outcome = self.run(accept(self.store, self.sent[number]))
        assert not outcome.refusal
        if number not in self.processed:
            assert (outcome.duplicates == 1) == (number in self.acked)
        self.acked.add(number)

    def forward_and_process(self, fault: Fault | None) -> None:
        if events := self.store.outbox.read(0, 20, 1 << 20):
            self.processed.update(self.ids(list(events)))
            DISK.fault = fault
            mark_processed(self.store, events[0].position, events[-1].position)
            self.clock.pass_seconds(11)
            for _ in range(5):
                self.store.trouble()
            DISK.fault = None

    def open_reader(self) -> None:
        self.close_reader()
        self.reader = database.open_for_reading(self.folder / FILE_NAME)
        self.reader.execute("BEGIN")
        self.reader.execute("SELECT count(*) FROM events").fetchone()

    def close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def kill(self, *, reads: bool, salvaged: bool) -> None:
        self.end()
        if salvaged:
            swap.suspect(self.folder / FILE_NAME, "set by the test")
        if reads:
            self.open_reader()
        self.start()
        assert any(swap.damaged_files(self.folder / FILE_NAME)) == salvaged, "a healthy store is called damaged"
        self.adopt()

    def kill_and_damage(self, name: str, chance: Random, *, cut: bool) -> None:
        before = self.positions()
        commits = self.commits()
        self.end()
        _damage(self.folder / name, chance, cut=cut)
        swap.suspect(self.folder / FILE_NAME, "set by the test")
        self.start()
        self.run(accept(self.store, Event("other", id=len(self.labels))))
        # Damage to the end of a log looks like a commit torn by a power cut: they cannot be distinguished.
        may_lose_from = commits[-3] if len(commits) > 2 else 0
        declared = self.declared()
        there = set(self.positions())
        for number in self.acked - there - self.processed:
            assert (name == LOG and before[number].position >= may_lose_from) or declared(before[number]), number
        self.acked &= there | self.processed
        self.adopt()

    def take_log_away(self, how: str, fault: Fault | None) -> None:
        """Remove or change the log under the running store, in which one commit may have failed before."""
        log, before = self.folder / LOG, self.positions()
        older, self.older_log = self.older_log, log.read_bytes()
        if fault is not None:
            with DISK.failing(fault):
                self.post(1, SIZES[0])
        if how == "overwrite" and (not older or (older[:32] == log.read_bytes()[:32])):
            how = "empty"  # since the same restart it would be a prefix of the present log
        log.unlink() if how in ("remove", "make anew") else log.write_bytes(older if how == "overwrite" else b"")
        if how == "make anew":
            log.touch()
        if self.post(1, SIZES[0]):
            self.kill(reads=False, salvaged=False)  # then it was acked into a log that the next start reads
            return
        assert self.store.failed.done()
        self.close_reader()
        self.run(self.stack.aclose())
        self.start()
        self.run(accept(self.store, Event("other", id=len(self.labels))))
        lost = self.acked - set(self.positions()) - self.processed
        assert not lost or how in ("empty", "overwrite")
        declared = self.declared()
        assert all(declared(before[number]) for number in lost), lost
        self.acked -= lost
        self.adopt()

    # Invariants

    @invariant()
    def every_acked_event_is_there_once_and_a_label_is_one_events_for_ever(self) -> None:
        events = self.events()
        found = self.ids(events)
        assert all(found.count(number) == 1 for number in self.acked - self.processed)
        assert len({event.label for event in events}) == len(events)
        for event in events:
            assert self.labels.setdefault(event.label, event.fingerprint) == event.fingerprint
        self.witness.see(events)
        numbers = sorted(self.sent.keys() - self.processed)
        known = which_are_known(self.store, [fingerprint(self.sent[number]) for number in numbers])
        assert known == [number in self.acked for number in numbers]

    def post(self, count: int, size: int) -> bool:
        numbers = range(len(self.sent) + 1, len(self.sent) + count + 1)
        chance = Random(len(self.sent))
        for number in numbers:
            self.sent[number] = Event("d", id=number, data={"text": chance.randbytes(size // 2).hex()})
        outcome = self.run(accept(self.store, *(self.sent[number] for number in numbers)))
        if not outcome.refusal:
            self.acked.update(numbers)
        return not outcome.refusal

    def end(self) -> None:
        """Kill the process: its files are copied to another folder."""
        self.folders += 1
        image = crash_image(self.folder, self.root / str(self.folders))
        self.close_reader()
        self.run(self.stack.aclose())
        self.folder = image

    def adopt(self) -> None:
        """Count stored events without an ack as acked: a commit of unknown outcome, before the process ended."""
        self.acked |= set(self.positions())

    def events(self) -> list[StoredEvent]:
        """Read all events of the file, in any state."""
        self.store.trouble()  # a turn of the writer
        with closing(database.open_for_reading(self.folder / FILE_NAME)) as connection:
            epochs = Epochs.load(connection)
            rows = connection.execute("SELECT first_position, count, packed FROM events ORDER BY first_position")
            return [*chain.from_iterable(labelled([event], epochs) for row in rows for event in unpack_readable(*row))]

    def ids(self, events: list[StoredEvent]) -> list[int]:
        return [number for number, _ in _numbered(events)]

    def positions(self) -> dict[int, StoredEvent]:
        return dict(_numbered(self.events()))

    def commits(self) -> list[int]:
        return [first for (first,) in rows(self.folder, "SELECT first_position FROM events ORDER BY 1")]

    def declared(self) -> Any:
        """Return whether an event is in a declared gap, or behind the last one that a gap names as found."""
        events = self.events()
        lost, found_to = lost_labels(events)
        ends = [event.position for event in events if event.label in found_to]
        return lambda event: event.label in lost or event.position > min(ends, default=-1)


def _numbered(events: list[StoredEvent]) -> Iterator[tuple[int, StoredEvent]]:
    for event in events:
        entries = document(event)
        if entries["device"] == "d":
            yield entries["id"], event


def _damage(file: Path, chance: Random, *, cut: bool) -> None:
    content = bytearray(file.read_bytes())
    if not content:
        return
    at = chance.randrange(len(content))
    if cut:
        del content[at:]
    else:
        for offset in range(at, min(at + chance.choice((1, 64, 4096)), len(content))):
            content[offset] ^= chance.randrange(1, 256)
    file.write_bytes(content)


@pytest.mark.guarantee(7, 8)
@pytest.mark.parametrize(("examples", "steps"), [(12, 12), pytest.param(200, 30, marks=pytest.mark.heavy)])
def test_no_order_of_failures_of_thousands_loses_or_doubles_anything(examples: int, steps: int) -> None:
    bounds = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(RecoveryMachine, settings=bounds)
