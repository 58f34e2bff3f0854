"""Commits that fail, whose outcome is unknown, or whose log is taken away: no event is acked that is not on disk."""

import errno
import os
import shutil
import struct
from pathlib import Path
from random import randbytes
from types import SimpleNamespace

import pytest

from agent.store import layout
from agent.store.errors import DamagedStoreError
from agent.store.event_store import EventStore
from agent.store.files import write_ahead_log
from agent.store.files.sqlite_pages import LogFrames, _sum
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES, LOG_HEADER_BYTES
from agent.store.port import OutboxError
from agent.store.recovery.verify import verify
from agent.store.schema import database
from agent.store.schema.gaps import Gap
from agent.store.write.transaction import Transactions
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.stores import (
    Faulty,
    accept,
    change,
    crash_image,
    declared,
    document,
    make_store,
    stored_events,
    write_back,
)
from tests.support.flushes import refusing

ONE, TWO, THREE = (Event("d", id=number) for number in (1, 2, 3))


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("a_fact_follows", [True, False])
async def test_a_gap_whose_declaration_failed_is_declared_whatever_comes_between(
    tmp_path: Path, faulty: Faulty, a_fact_follows: bool
) -> None:
    faulty.in_truth = "COMMIT"

    def declare_in_vain() -> None:
        store._committer.removal.give_up(Gap(2, 2, "test"))
        faulty.fault = "COMMIT"
        store._committer.declare()
        faulty.fault = ""

    async with make_store(tmp_path / "live", connect=faulty.connect) as store:
        await accept(store, ONE)
        await accept(store, TWO)
        store._writer.call(declare_in_vain)
        if a_fact_follows:
            store.outbox.set_fact("a", "b")
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with make_store(image) as store:
        await accept(store, THREE)
        assert len(declared(stored_events(store))) == 1
    assert not verify(image / FILE_NAME).findings


@pytest.mark.guarantee(1)
@pytest.mark.parametrize(
    ("faults", "in_truth"),
    [
        (("INSERT INTO fingerprints", "ROLLBACK"), ""),
        (("INSERT INTO fingerprints", "ROLLBACK"), "ROLLBACK"),
        (("INSERT INTO fingerprints", "ROLLBACK"), "COMMIT"),
        (("COMMIT",), "COMMIT"),
    ],
)
async def test_of_a_transaction_of_unknown_outcome_nothing_stands_and_nobody_is_acked(
    tmp_path: Path, faulty: Faulty, faults: tuple[str, ...], in_truth: str
) -> None:
    faulty.in_truth = in_truth
    large = Event("d", id=9, data={"text": "x" * 60_000})
    async with make_store(tmp_path / "live", connect=faulty.connect) as store:
        await accept(store, ONE)
        store._transactions.connection.get().execute("PRAGMA cache_size = 1")  # so that the log has it before its end
        faulty.fault = faults
        assert (await accept(store, large)).refusal
        faulty.fault = "DELETE FROM fingerprints WHERE first_position >= ?"
        assert (await accept(store, TWO)).refusal, "what may be on disk is deleted first"
        assert store._transactions.connection.get().execute("PRAGMA secure_delete").fetchone()[0] == 0
        faulty.fault = ""
        assert (await accept(store, TWO)).accepted == 1
        assert (await accept(store, large)).accepted == 1
        before = stored_events(store)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    async with make_store(image) as store:
        assert stored_events(store) == before
        ids = [document(event)["id"] for event in before]
        assert [number for number in ids if isinstance(number, int)] == [1, 2, 9]
        labels = {event.label for event in before}
        assert len(labels) == len(before)
        assert len({label.epoch for label in labels}) == 2, "what may have been labelled is labelled anew"
    assert not verify(image / FILE_NAME).findings


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("in_truth", ["COMMIT", "ROLLBACK"])
async def test_what_is_given_up_again_after_an_unknown_outcome_is_declared_once(
    tmp_path: Path, faulty: Faulty, in_truth: str
) -> None:
    faulty.in_truth = in_truth
    async with make_store(tmp_path, connect=faulty.connect) as store:
        await accept(store, ONE, TWO, THREE)
        store.outbox.give_up(2, "test")
        faulty.fault = "COMMIT"
        with pytest.raises(OutboxError):
            store.outbox.give_up(3, "test")
        faulty.fault = ""
        store.outbox.give_up(3, "test")
        store.outbox.give_up(4, "test")
        found = declared(stored_events(store))
    assert [gap["count"] for gap in found] == [1, 1, 1]
    assert [label[1:] for gap in found for label in gap["labels"]] == [[2, 2], [3, 3], [4, 4]]


@pytest.mark.guarantee(1)
async def test_a_copy_of_what_a_kill_may_have_left_in_the_page_cache_is_acked_once_that_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    async with make_store(tmp_path / "live", connect=disk.connect) as store:
        assert (await accept(store, ONE)).accepted == 1
        with disk.failing(Fault(Operation.FLUSH, Error.BROKEN)):
            assert (await accept(store, TWO)).refusal
            image = crash_image(tmp_path / "live", tmp_path / "killed")
    disk.below(monkeypatch)
    with disk.failing(Fault(Operation.FLUSH, Error.BROKEN)) as fault:
        async with make_store(image, connect=disk.connect) as store:
            for event in (ONE, TWO):
                assert (await accept(store, event)).refusal
            assert fault.hits >= 2
            assert sum(document(event)["device"] == "d" for event in stored_events(store)) == 2, "and is forwarded"
            disk.fault = None
            for event in (ONE, TWO):
                assert (await accept(store, event)).duplicates == 1


async def test_a_duplicate_is_acked_once_nothing_refused_lies_behind_the_last_commit(tmp_path: Path) -> None:
    disk, large = FailingDisk(), Event("d", id=9, data={"text": randbytes(4_000).hex()})
    async with make_store(tmp_path / "live", connect=disk.connect) as store:
        assert (await accept(store, ONE)).accepted == 1
        with disk.failing(Fault(Operation.WRITE, Error.BROKEN, after=6)):
            assert (await accept(store, large)).refusal
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    assert LogFrames(image / FILE_NAME).behind, "the failed commit has left nothing: the test shows nothing"
    async with make_store(image) as store:
        assert (await accept(store, ONE)).duplicates == 1
        assert not LogFrames(image / FILE_NAME).behind


LOG = f"{FILE_NAME}-wal"
TEXT = "x" * 3_000
LOG_BYTES = 100 * LOG_FRAME_BYTES
"""Small enough that the log is soon written back."""


def take_away(log: Path, how: str) -> None:
    match how:
        case "truncated":
            os.truncate(log, 0)
        case "shortened":
            os.truncate(log, log.stat().st_size // 2)
        case "cut behind its first frame":
            os.truncate(log, LOG_HEADER_BYTES + LOG_FRAME_BYTES)
        case "removed":
            log.unlink()
        case "replaced":
            log.rename(log.with_name("gone"))
            log.write_bytes(log.with_name("gone").read_bytes())
        case "overwritten":
            with log.open("r+b") as file:
                file.write(bytes(100))
        case "made anew":  # empty, as any reader makes it after the removal
            log.unlink()
            log.touch()


def what_a_kill_leaves(folder: Path, to: Path) -> Path:
    """Copy all files but those that are valid only while a process runs."""
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm", "*.lock")))


def damage_met(store: EventStore) -> BaseException | None:
    return store.failed.exception() if store.failed.done() else None


def ids(store: EventStore) -> list[int]:
    return [entries["id"] for entries in map(document, stored_events(store)) if entries["device"] == "d"]


OPEN_FOR_SQLITE = ("removed", "replaced", "made anew")
"""What SQLite still has open; of the others events are lost, which is reported, and the file is unchanged."""


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("then", ["new events", "duplicates", "the end"])
@pytest.mark.parametrize(
    "how", [*OPEN_FOR_SQLITE, "truncated", "shortened", "cut behind its first frame", "overwritten"]
)
async def test_whatever_comes_after_the_log_is_gone_is_refused_and_nothing_is_lost_silently(
    tmp_path: Path, how: str, then: str
) -> None:
    first, last, later = (
        [Event("d", id=number, data={"text": TEXT}) for number in range(start, start + 10)] for start in (0, 10, 100)
    )
    async with make_store(tmp_path) as store:
        await accept(store, *first)
    async with make_store(tmp_path) as store:
        for event in last:
            await accept(store, event)
        assert (await accept(store, *first, *last)).duplicates == 20
        take_away(tmp_path / LOG, how)
        for event in {"new events": later, "duplicates": last, "the end": []}[then]:
            assert (await accept(store, event)).refusal
    assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path) as store:
        assert (await accept(store, *later)).accepted == 10
        assert set(ids(store)) >= {*range(20 if how in OPEN_FOR_SQLITE else 10), *range(100, 110)}
        assert "found_to_sequence" in declared(stored_events(store))[0]
        assert not (await accept(store, *first, *last)).refusal
        assert sorted(ids(store)) == [*range(20), *range(100, 110)]


@pytest.mark.parametrize("added", [-1, -1_000, 1 << 20, 1 << 31])
@pytest.mark.parametrize("fails_before", ["", "COMMIT"])
async def test_a_log_that_was_overwritten_by_that_of_another_life_of_the_store_is_damage(
    tmp_path: Path, added: int, fails_before: str, faulty: Faulty
) -> None:
    async with make_store(tmp_path, connect=faulty.connect) as store:
        for number in range(9):
            await accept(store, Event("d", id=number, data={"text": TEXT}))
        if fails_before:
            faulty.fault = fails_before
            assert (await accept(store, Event("d", id=9))).refusal
            faulty.fault = ""
        log = bytearray((tmp_path / LOG).read_bytes())
        salt = int.from_bytes(log[16:20], "big") + added
        log[16:20] = (salt % (1 << 32)).to_bytes(4, "big")
        order = ">" if log[3] & 1 else "<"
        log[24:32] = struct.pack(">2I", *_sum(bytes(log[:24]), order))
        (tmp_path / LOG).write_bytes(log)
        assert (await accept(store, Event("d", id=10))).refusal
        assert damage_met(store)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_was_renamed_under_the_store_is_noticed_and_its_log_is_salvaged(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    file = tmp_path / FILE_NAME
    async with make_store(tmp_path) as store:
        await accept(store, Event("d", id=0))
        write_back(store)
        for number in range(1, 5):
            await accept(store, Event("d", id=number, data={"text": TEXT}))
        file.rename(tmp_path / "elsewhere")
        if is_replaced:
            file.write_bytes((tmp_path / "elsewhere").read_bytes())
        for number in (0, 5, 5):
            assert (await accept(store, Event("d", id=number))).refusal
        assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path) as store:
        assert (await accept(store, Event("d", id=5), Event("d", id=6))).accepted == 2
        assert set(ids(store)) >= {1, 2, 3, 4, 5, 6}
        assert declared(stored_events(store))


async def test_a_log_that_cannot_be_looked_at_after_a_commit_is_damage_and_not_a_store_that_refuses_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [Event("d", id=number) for number in range(3)]
    async with make_store(tmp_path) as store:
        await accept(store, events[0])
        monkeypatch.setattr(write_ahead_log, "os", SimpleNamespace(**{**vars(os), "pread": refusing(errno.EIO)}))
        assert (await accept(store, events[1])).refusal
        monkeypatch.undo()
        assert (await accept(store, events[2])).refusal
        assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path) as store:
        assert (await accept(store, *events)).refusal == ""
        assert sorted(ids(store)) == [0, 1, 2]


async def test_a_position_that_is_taken_on_disk_and_not_in_memory_is_damage(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, Event("d", id=0))
        latest = "SELECT first_position + count, 1, packed FROM events ORDER BY 1 DESC LIMIT 1"
        change(tmp_path, f"INSERT INTO events {latest}")
        assert (await accept(store, Event("d", id=1))).refusal
        assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path) as store:
        assert (await accept(store, Event("d", id=0), Event("d", id=1))).duplicates == 1
        assert sorted(ids(store)) == [0, 1]


@pytest.mark.guarantee(7)
async def test_a_log_that_was_truncated_is_not_written_back_by_the_commit_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LOG_BYTES_KEPT", LOG_BYTES)
    async with make_store(tmp_path) as store:
        for number in range(40):
            await accept(store, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
    async with make_store(tmp_path) as store:
        number = 100
        while (tmp_path / LOG).stat().st_size < LOG_BYTES * 0.9:
            await accept(store, Event("d", id=number, data={"text": os.urandom(500).hex()}))
            number += 1
        os.truncate(tmp_path / LOG, 0)
        before = (tmp_path / FILE_NAME).read_bytes()
        last = Event("d", id=number, data={"text": os.urandom(90_000).hex()})
        assert "truncated" in (await accept(store, last)).refusal
        assert (tmp_path / FILE_NAME).read_bytes() == before
    assert (tmp_path / FILE_NAME).read_bytes() == before, "nor at the end"
    async with make_store(tmp_path) as store:
        assert set(ids(store)) >= set(range(40))


async def test_the_log_is_written_back_when_it_has_grown_to_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "LOG_BYTES_KEPT", LOG_BYTES)
    rounds = set()
    async with make_store(tmp_path) as store:
        for number in range(150):
            await accept(store, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
            assert (tmp_path / LOG).stat().st_size <= LOG_BYTES + 20 * LOG_FRAME_BYTES
            with (tmp_path / LOG).open("rb") as file:
                rounds.add(file.read(LOG_HEADER_BYTES))
        assert 5 < len(rounds) < 100
        assert len(ids(store)) == 150


async def test_a_log_that_begins_anew_or_is_emptied_by_the_store_itself_is_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_store(tmp_path) as store:
        for number in range(30):
            assert (await accept(store, Event("d", id=number, data={"text": TEXT * 5}))).accepted == 1
            if number % 3 == 0:
                write_back(store)
            if number % 5 == 0:
                store._writer.call(lambda: database.empty_log(store._transactions.connection.get()))
                store._writer.call(lambda: carry_nothing(store._transactions))
            assert not store.trouble(trial=True)
        assert not store.failed.done()
    assert not [record for record in caplog.records if record.name.startswith("agent")]


def carry_nothing(transactions: Transactions) -> None:
    with transactions.begin():
        pass
