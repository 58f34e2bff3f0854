"""The files are verified before an ack, a read or a write relies on them, beside each commit."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.store.errors import DamagedStoreError
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES, LOG_HEADER_BYTES
from agent.store.schema import disk_space
from contract.event import Event
from tests.agent.store.faults.test_log_taken_away import (
    LOG,
    TEXT,
    damage_met,
    ids,
    make_anew,
    overwrite,
    remove,
    replace,
    truncate,
)
from tests.agent.store.stores import HandClock, accept, make_store, write_back


def leave_one_frame(log: Path) -> None:
    os.truncate(log, LOG_HEADER_BYTES + LOG_FRAME_BYTES)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("take_away", [truncate, leave_one_frame, remove, replace, overwrite, make_anew])
async def test_no_copy_is_acked_of_what_stood_in_a_log_that_was_taken_away(
    tmp_path: Path, clock: HandClock, take_away: Callable[[Path], None]
) -> None:
    events = [Event("d", id=number, data={"text": TEXT}) for number in range(9)]
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, clock, *events)).accepted == 9
        assert (await accept(store, clock, *events)).duplicates == 9
        take_away(tmp_path / LOG)
        assert (await accept(store, clock, *events)).refusal
        assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path, clock) as store:
        assert not (await accept(store, clock, *events)).refusal
        assert sorted(ids(store)) == [*range(9)]


@pytest.mark.guarantee(7)
async def test_a_log_of_which_others_have_cut_off_what_no_longer_counts_is_no_damage(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        for number in range(9):
            await accept(store, clock, Event("d", id=number, data={"text": TEXT}))
        write_back(store)
        await accept(store, clock, Event("d", id=9))
        os.truncate(tmp_path / LOG, (tmp_path / LOG).stat().st_size - LOG_FRAME_BYTES)
        assert (await accept(store, clock, *(Event("d", id=number) for number in (9, 10)))).duplicates == 1
        assert not damage_met(store)


@pytest.mark.guarantee(7)
async def test_an_older_copy_of_the_log_is_not_written_into_the_file_to_make_room(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "LOG_BYTES_EXPECTED", 0)
    async with make_store(tmp_path, clock) as store:
        for number in range(40):
            await accept(store, clock, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
        older = (tmp_path / LOG).read_bytes()
        write_back(store)
        for number in range(100, 120):
            await accept(store, clock, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
        assert (tmp_path / LOG).read_bytes()[:LOG_HEADER_BYTES] != older[:LOG_HEADER_BYTES]
        with (tmp_path / LOG).open("r+b") as file:
            file.write(older)
        before = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(DamagedStoreError):
            store._writer.call(store._transactions.capacity.limit_log)
        assert (tmp_path / FILE_NAME).read_bytes() == before
        assert (await accept(store, clock, Event("d", id=120))).refusal
    async with make_store(tmp_path, clock) as store:
        assert set(ids(store)) >= set(range(40))
