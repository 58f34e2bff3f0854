"""Removal in pieces: what is deleted never fills the log, whatever the sizes of the commits."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import randbytes
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from agent.cli.doctor.machine import STORE_BYTES_MIN
from agent.status import read_status
from agent.store.event_store import EventStore
from agent.store.fingerprints import segments
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.schema import database, disk_space
from agent.store.write.decision import STORE_FULL
from agent.store.write.removal import PIECE_BYTES
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.faults.test_full_disk import take_all_but
from tests.agent.store.stores import (
    GATEWAY,
    START,
    HandClock,
    accept,
    crash_image,
    holding_the_log,
    make_store,
    mark_processed,
    submit,
    take_turns,
    watched,
    write_commits,
)
from tests.support.disks.small_disk import small_disk

LOG_BYTES_MAX = PIECE_BYTES * 3 // 2
"""Of a purge alone: a piece, and what it changes besides."""
SIZES = st.one_of(st.just(1), st.integers(1, 100))
TURNS_MAX = 200
KNOWN = Event("d", id="known")


def noting_log_bytes(folder: Path, noted: list[int]) -> database.Connect:
    """Note how large the log is after each transaction."""

    def note(sql: str) -> None:
        if sql == "COMMIT":
            noted.append(disk_space.log_bytes(folder / FILE_NAME))

    return watched(after=note)


def wait_for(store: EventStore, is_done: Callable[[], bool]) -> None:
    take_turns(store, TURNS_MAX, is_done)
    assert is_done()


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
@example(sizes=[1], when_full="refuse")
@given(sizes=st.lists(SIZES, min_size=1, max_size=5), when_full=st.sampled_from(["refuse", "drop-oldest"]))
def test_a_full_store_whose_events_are_in_the_table_empties_by_itself_with_a_short_log(
    sizes: list[int], when_full: str
) -> None:
    async def run(folder: Path) -> None:
        clock, log_bytes, bounds = HandClock(), [0], {"max_bytes": bytes_max, "keep_processed_seconds": 100}
        last = write_commits(folder, sizes, bytes_max * 9 // 10)
        connect = noting_log_bytes(folder, log_bytes)
        async with make_store(folder, clock, connect=connect, when_full=when_full, **bounds) as store:
            if when_full == "refuse":
                assert (await accept(store, Event("d", id="a"))).refusal == STORE_FULL
            else:
                assert (await accept(store, Event("d", id="a"))).accepted == 1
                assert 0 < store.counts().lost < last // 10
            mark_processed(store, 1, last)
            assert (await accept(store, Event("d", id="b"))).accepted == 1
            clock.pass_seconds(101)
            wait_for(store, lambda: store.counts().processed == 0)
            assert max(log_bytes) <= LOG_BYTES_MAX
            assert store.outbox.read(0, 9, 1 << 20)

    bytes_max = 6 << 20
    with TemporaryDirectory(prefix="removal-") as folder:
        asyncio.run(run(Path(folder)))


@pytest.mark.guarantee(3)
async def test_what_failed_for_lack_of_space_is_not_tried_by_each_request_and_is_no_space(tmp_path: Path) -> None:
    clock, system = HandClock(), FailingDisk()
    last = write_commits(tmp_path, [1], 900_000)
    async with make_store(tmp_path, clock, connect=system.connect, max_bytes=1_000_000) as store:
        mark_processed(store, 1, last)
        with system.failing(Fault(Operation.WRITE, Error.FULL, ("", "-wal"))) as fault:
            refusals = [(await accept(store, Event("d", id="a"))).refusal]
            before = fault.hits
            refusals += [(await accept(store, Event("d", id=number))).refusal for number in range(20)]
            assert all(refusals)
            assert fault.hits == before > 0
            assert store.trouble()
        clock.pass_seconds(11)
        wait_for(store, lambda: not store.trouble())
        assert (await accept(store, Event("d", id="a"))).accepted == 1


@pytest.mark.guarantee(3)
@pytest.mark.heavy
async def test_a_disk_full_of_single_events_is_emptied_while_it_serves_and_with_what_others_leave(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 29) as disk:
        clock, folder = HandClock(), disk / "state"
        last = write_commits(tmp_path / "made", [1], 20 << 20)
        copytree(tmp_path / "made", folder)
        async with make_store(folder, clock) as store:
            assert (await accept(store, KNOWN)).accepted == 1
            take_all_but(disk / "filler", disk_space.RESERVE_BYTES - (64 << 10))
            assert (await accept(store, Event("d", id="a"))).refusal == disk_space.DISK_FULL
            for _ in range(10):  # what is rejected beside a known event is kept, up to a bound
                rejects = tuple(Reject("d", "http", START, "bad", randbytes(4_096)) for _ in range(200))
                assert (await submit(store, KNOWN, rejects=rejects)).duplicates == 1
            assert disk_space.free_bytes(folder / FILE_NAME) > 2 * PIECE_BYTES
            take_all_but(disk / "filler", 300 << 10)  # less than a piece
            mark_processed(store, 1, last)
            for _ in range(TURNS_MAX):
                clock.pass_seconds(6)
                if (await accept(store, Event("d", id="a"))).accepted:
                    break
            assert (await accept(store, Event("d", id="a"))).duplicates == 1
            assert not store.trouble()


@pytest.mark.guarantee(3)
async def test_a_reader_of_the_log_delays_a_purge_that_would_only_lengthen_it(tmp_path: Path) -> None:
    clock, log_bytes = HandClock(), [0]
    last, connect = write_commits(tmp_path, [1], 4 << 20), noting_log_bytes(tmp_path, log_bytes)
    async with make_store(tmp_path, clock, connect=connect, keep_processed_seconds=0) as store:
        with pytest.MonkeyPatch.context() as patch, holding_the_log(tmp_path):
            patch.setattr(disk_space, "LOG_BYTES_EXPECTED", 1 << 20)
            mark_processed(store, 1, last)
            for _ in range(20):
                clock.pass_seconds(11)
                store.trouble()
            assert max(log_bytes) < 2 << 20
        clock.pass_seconds(11)
        wait_for(store, lambda: store.counts().processed == 0)


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("when_full", ["refuse", "drop-oldest"])
async def test_no_event_waits_until_a_store_whose_bound_was_lowered_is_below_it(tmp_path: Path, when_full: str) -> None:
    class SlowDisk(HandClock):
        def monotonic_ms(self) -> int:
            self.pass_seconds(1)
            return self.running

    last = write_commits(tmp_path, [1], 6 << 20)
    async with make_store(tmp_path, SlowDisk(), max_bytes=2 << 20, when_full=when_full) as store:
        if when_full == "refuse":
            mark_processed(store, 1, last)
        assert (await accept(store, Event("d", id="a"))).refusal == STORE_FULL
        wait_for(store, lambda: not store._writer.call(store._transactions.capacity.is_full))
        assert (await accept(store, Event("d", id="a"))).accepted == 1


@pytest.mark.guarantee(2)
@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize("when_full", ["refuse", "drop-oldest"])
async def test_fingerprints_beyond_their_share_are_forgotten_and_never_cost_an_event(
    tmp_path: Path, when_full: str, caplog: pytest.LogCaptureFixture, clock: HandClock
) -> None:
    store_settings: dict[str, Any] = {"when_full": when_full, "keep_processed_seconds": 0, "segment_events": 1_024}
    async with make_store(tmp_path, clock, max_bytes=STORE_BYTES_MIN, **store_settings) as store:
        for number in range(150):
            outcome = await accept(store, *(Event("d", id=200 * number + place) for place in range(200)))
            assert outcome.accepted == 200, outcome.refusal
            mark_processed(store, 1, store._memory.end)
            clock.pass_seconds(1)
        assert not store.trouble()
        assert read_status(tmp_path, GATEWAY).forgotten_early == store._memory.forgotten_early > 1_000
        assert (await accept(store, Event("d", id=29_000))).duplicates == 1
        assert (await accept(store, Event("d", id=0))).accepted == 1
    assert "store=fingerprints forgotten=1024" in caplog.text
    async with make_store(tmp_path, clock, max_bytes=STORE_BYTES_MIN * 3 // 4, **store_settings) as store:
        assert (await accept(store, Event("d", id="in less space"))).accepted == 1
        assert store.counts().lost == 0, "dropped"


async def test_a_segment_is_forgotten_in_pieces_and_a_kill_leaves_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: HandClock
) -> None:
    monkeypatch.setattr(segments, "ROWS_PER_PIECE", 1)
    async with make_store(tmp_path / "live", clock, segment_events=600, retention_seconds=100) as store:
        await accept(store, *(Event("d", id=number) for number in range(900)))
        wait_for(store, lambda: store._memory.fingerprints.sealed_events > 0)
        before = count_rows(tmp_path / "live")
        assert before > 2
        clock.pass_seconds(1_000)
        wait_for(store, lambda: count_rows(tmp_path / "live") < before)
        image = crash_image(tmp_path / "live", tmp_path / "image")
    async with make_store(image, clock, segment_events=600, retention_seconds=100) as store:
        wait_for(store, lambda: count_rows(image) == 0)
        assert (await accept(store, Event("d", id=7))).accepted == 1


def count_rows(folder: Path) -> int:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        found: int = connection.execute("SELECT count(*) FROM sealed").fetchone()[0]
    return found
