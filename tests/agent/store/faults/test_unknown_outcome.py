"""Commits that fail or whose outcome is unknown: nothing of them is stored, acked, or taken for acked events."""

from collections.abc import Callable
from pathlib import Path
from random import randbytes

import pytest

from agent.store.event_store import EventStore
from agent.store.files.sqlite_pages import LogFrames
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.recovery.verify import verify
from agent.store.schema.gaps import Gap
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.stores import (
    Faulty,
    accept,
    crash_image,
    declared,
    document,
    make_store,
    stored_events,
)

ONE, TWO, THREE = (Event("d", id=number) for number in (1, 2, 3))


def write_a_fact(store: EventStore) -> None:
    store.outbox.set_fact("a", "b")


def restart(store: EventStore) -> None:
    pass


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("following", [write_a_fact, restart])
async def test_a_gap_whose_declaration_failed_is_declared_whatever_comes_between(
    tmp_path: Path, faulty: Faulty, following: Callable[[EventStore], None]
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
        following(store)
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
    assert [(gap["count"], [label[1:] for label in gap["labels"]]) for gap in found] == [
        (1, [[2, 2]]),
        (1, [[3, 3]]),
        (1, [[4, 4]]),
    ]


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
