"""Power cuts at any moment, with any part of the unflushed writes: every acked event is there."""

import random
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import cast

import pytest

from agent.config.settings import IdentitySettings, StoreSettings
from agent.store import layout
from agent.store.files import swap
from agent.store.files.write_ahead_log import WriteAheadLog
from agent.store.fingerprints.index import IndexBounds
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES, LOG_HEADER_BYTES
from agent.store.memory import Memory, load
from agent.store.port import ClosedSection, Submission
from agent.store.read import section
from agent.store.read.events import read_packed
from agent.store.recovery.open import open_store
from agent.store.schema import database, tables
from agent.store.write.committer import Answers, Committer
from agent.store.write.maintenance import Maintenance
from agent.store.write.removal import Removal
from agent.store.write.transaction import Transactions
from contract.event import Event, Label
from tests.agent.store.faults.power_cuts import Image, images
from tests.agent.store.faults.recording import NO_KILL, Ack, KilledError, Recording, Step
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    batch,
    candidate,
    position_of,
)

LOG_BYTES = LOG_HEADER_BYTES + 12 * LOG_FRAME_BYTES
"""Small enough for many checkpoints and restarts of the log in a short load."""
COMMITS, OPENINGS = 14, 9
SEGMENT_EVENTS = 64
"""Small enough that the cuts cover every step of sealing."""
SECTION_EVENTS = 40
"""The same for the sections of the hash chain, where no kind of fault has to occur: a kill at the flush of a checkpoint
leaves no event whose resend would be a duplicate.
"""
MEMORY_FILES = Path("/dev/shm")  # the images' own flushes prove nothing, and take time

Commit = Callable[[Committer, Recording, Sequence[Submission]], None]


def commit_then_ack(committer: Committer, recording: Recording, group: Sequence[Submission]) -> None:
    committer.commit(group)


def ack_then_commit(committer: Committer, recording: Recording, group: Sequence[Submission]) -> None:
    """Ack too early, for the generator to detect."""
    for submission in group:
        recording.steps.append(Ack(tuple(filter(None, (event.fingerprint for event in submission.candidates)))))
    committer.commit(group)


class Load:
    """The real committer and the real maintenance over a recording."""

    def __init__(self, folder: Path, random: Random, commit: Commit, synchronous: str) -> None:
        folder.mkdir()
        self._recording = Recording(folder / FILE_NAME)
        self._random = random
        self._commit = commit
        self._synchronous = synchronous
        self._clock = HandClock()
        self._number = 0
        self.sections: dict[Label, ClosedSection | None] = {}
        """The latest section after each commit, by the label of the last event."""

    def run(self) -> list[Step]:
        """Return the steps of some openings, most of which end with a kill before a flush of the log."""
        sent_last: list[Submission] = []
        for _ in range(OPENINGS):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(layout, "LOG_BYTES_KEPT", LOG_BYTES)
                self._recording.below(patch)
                sent_last = self._open_and_work(sent_last)
            if self._recording.left is not None:
                self._recording = Recording(self._recording.left, self._recording.steps)
        return self._recording.steps

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = cast("sqlite3.Connection", self._recording.connect())
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log in memory: none of its steps count
        database.prepare(connection, path)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return connection

    def _open_and_work(self, again: Sequence[Submission]) -> list[Submission]:
        """Commit the events that the previous process received last, then more; return the last ones sent."""
        path = self._recording.path
        self._recording.flushes_left = NO_KILL
        connection = self._connect(path)
        memory = load(connection, self._clock, IdentitySettings(), IndexBounds(segment_events=SEGMENT_EVENTS))
        writes = Transactions(path, self._connect, StoreSettings(), self._clock, memory, lambda _: None)
        removal = Removal(writes)
        committer = Committer(writes, removal, GATEWAY, self._clock, self._announce)
        maintenance = Maintenance(writes, removal, self._clock, 0, 7 * 86_400, committer.declare)
        group = list(again)
        self._recording.flushes_left = self._random.randrange(3 * COMMITS)
        self._recording.flush_fails = self._random.random() < 0.5
        with suppress(KilledError):
            writes.connection.start(connection)
            for _ in range(COMMITS):
                if group:
                    self._commit(committer, self._recording, group)
                    self._note_section(memory)
                group = [self._submission() for _ in range(self._random.randint(1, 4))]
                self._work(memory, maintenance)
        del connection
        with suppress(KilledError):
            writes.connection.close()
        return group

    def _work(self, memory: Memory, maintenance: Maintenance) -> None:
        self._clock.pass_seconds(3)
        if self._random.random() < 0.3:
            first, last = memory.progress.next_new(0) or (0, 0)
            memory.progress.mark_forwarded(batch(first, last))
            if self._random.random() < 0.7:
                memory.progress.mark_processed(
                    memory.progress.forwarded(), self._clock.monotonic_ms(), memory.first_kept
                )
        for _ in range(self._random.choice((1, 1, 20))):
            maintenance.run_due()
            self._note_section(memory)

    def _note_section(self, memory: Memory) -> None:
        if (last := memory.last_label()) is not None:
            self.sections[last] = memory.close_section()

    def _submission(self) -> Submission:
        events = []
        for _ in range(self._random.choice((1, 1, 1, 30))):
            self._number += 1
            events.append(Event("d", id=self._number, data={"text": "x" * self._random.randrange(1, 900)}))
        return Submission(tuple(candidate(self._clock, event) for event in events), (), None, lambda _: None)

    def _announce(self, answers: Answers) -> None:
        assert not any(outcome.refusal for _, outcome in answers)
        if self._commit is commit_then_ack:
            self._recording.steps.extend(Ack(outcome.fingerprints) for _, outcome in answers)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder, in memory if possible."""
    with tempfile.TemporaryDirectory(dir=MEMORY_FILES if MEMORY_FILES.is_dir() else tmp_path) as folder:
        yield Path(folder)


def broken(image: Image, folder: Path, sections: Mapping[Label, ClosedSection | None] = MappingProxyType({})) -> str:
    """Open an image as the agent does; return its faults."""
    folder.mkdir()
    path = folder / FILE_NAME
    for suffix, content in image.files.items():
        Path(f"{path}{suffix}").write_bytes(content)
    connection, memory = open_store(path, database.open_for_service, HandClock(boot_name="boot-2"), IdentitySettings())
    with closing(connection):
        if any(swap.damaged_files(path)):
            return "a power cut was taken for damage"
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            return f"integrity: {verdict}"
        processed = tables.load_processed(connection)
        kept = {event.fingerprint for event in read_packed(connection, 1, 1 << 40)}
        positions = {fingerprint: position_of(memory, connection, fingerprint) for fingerprint in image.acked}
    last = memory.last_label()
    if last is not None and (closed := memory.close_section()) != sections.get(last, closed):
        return f"the digest of the section that ends with {last} is {closed}, and was {sections[last]}"
    for fingerprint, position in positions.items():
        if position is None:
            return "an acked event is unknown"
        if fingerprint not in kept and not any(first <= position <= last for first, last in processed):
            return "an acked event is gone"
    return ""


def faults(folder: Path, seed: int, count: int, commit: Commit, synchronous: str = "FULL") -> Iterator[str]:
    """Try images of one load; return the faults of each one with any."""
    chance = Random(seed)
    load_ = Load(folder / f"load-{seed}", chance, commit, synchronous)
    steps = load_.run()
    for number, image in enumerate(images(steps, count, chance)):
        if fault := broken(image, folder / f"{seed}-{number}", load_.sections):
            yield f"seed {seed}, image {number}: {fault}"
        for file in (folder / f"{seed}-{number}").iterdir():
            file.unlink()


@pytest.mark.guarantee(7)
def test_a_cut_while_the_file_is_made_is_no_damage(folder: Path) -> None:
    journal = struct.pack(">8s5I", bytes.fromhex("d9d505f920a163d7"), 0, 0xA89B0112, 0, 512, 4096).ljust(512, b"\0")
    for torn in (bytes(3072), bytes(4096), b"SQLite format 3\0".ljust(512, b"\0")):
        assert not broken(Image({"": torn, "-journal": journal}, frozenset()), folder / str(torn.count(0)))
    for number, unfinished in enumerate((b"", bytes(512), bytes(12) + journal[12:])):  # its header comes last
        assert not broken(Image({"": b"", "-journal": unfinished}, frozenset()), folder / f"unfinished-{number}")


@pytest.mark.guarantee(1, 8)
@pytest.mark.parametrize("_run", [0, *(pytest.param(run, marks=pytest.mark.heavy) for run in range(1, 34))])
def test_no_power_cut_of_ten_thousand_takes_an_acked_event(
    folder: Path, monkeypatch: pytest.MonkeyPatch, _run: int
) -> None:
    monkeypatch.setattr(section, "SECTION_EVENTS", SECTION_EVENTS)
    assert not next(faults(folder, random.randrange(1 << 32), 300, commit_then_ack), "")


@pytest.mark.guarantee(1)
def test_the_generator_catches_commits_that_do_not_wait_for_the_flush(folder: Path) -> None:
    assert any("an acked event" in fault for fault in faults(folder, 1, 300, commit_then_ack, "NORMAL"))


@pytest.mark.guarantee(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("step", "instead"),
    [("flush", lambda _: None), ("_latest_commit", lambda *_: (0, 0))],
    ids=["flushed", "rewritten"],
)
def test_the_generator_catches_copies_acked_out_of_the_page_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, instead: Callable[..., object]
) -> None:
    # Sealing flushes the log as well, and with segments this small so often that few copies are left in the page cache.
    monkeypatch.setitem(globals(), "SEGMENT_EVENTS", 1 << 17)
    monkeypatch.setattr(WriteAheadLog, step, instead)
    found = (fault for seed in range(2, 20) for fault in faults(folder, seed, 300, commit_then_ack))
    assert any("an acked event" in fault for fault in found)


@pytest.mark.guarantee(1)
def test_the_generator_catches_an_ack_before_the_commit(folder: Path) -> None:
    assert any("an acked event" in fault for fault in faults(folder, 2, 300, ack_then_commit))
