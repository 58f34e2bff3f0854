"""The write-ahead log at an opening: torn at its first write, or without its database file."""

from pathlib import Path

import pytest

from agent.store.files import swap
from agent.store.layout import FILE_NAME
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, write_back

LOG = f"{FILE_NAME}-wal"


@pytest.mark.parametrize("length", [32, 4096, 100_000])
async def test_a_log_of_zeros_is_an_empty_one(tmp_path: Path, clock: HandClock, length: int) -> None:
    async with make_store(tmp_path / "live", clock) as store:
        await accept(store, clock, Event("d", id=0))
        write_back(store)
        killed = crash_image(tmp_path / "live", tmp_path / "killed")
    (killed / LOG).write_bytes(bytes(length))
    async with make_store(killed, clock) as store:
        assert not any(swap.damaged_files(killed / FILE_NAME))
        assert (await accept(store, clock, Event("d", id=0), Event("d", id=1))).duplicates == 1
        assert not store.failed.done()


async def test_a_log_whose_header_alone_is_zeros_is_damage(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path / "live", clock) as store:
        await accept(store, clock, Event("d", id=0))
        killed = crash_image(tmp_path / "live", tmp_path / "killed")
    with (killed / LOG).open("r+b") as file:
        file.write(bytes(32))
    async with make_store(killed, clock) as store:
        assert any(swap.damaged_files(killed / FILE_NAME))
        assert (await accept(store, clock, Event("d", id=0))).duplicates == 1
