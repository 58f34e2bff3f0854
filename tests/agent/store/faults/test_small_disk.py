"""The store on a full file system: the space that its log will add to the file is kept free."""

from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import disk_space
from contract.event import Event
from tests.agent.store.fingerprints.test_sealing import sealed
from tests.agent.store.stores import (
    HandClock,
    accept,
    holding_the_log,
    make_store,
    process_all,
    stored_events,
    take_turns,
)
from tests.support.disks.small_disk import small_disk

PACK = 80
FACTS_MAX, FACT_BYTES = 1_000, 20_000


def pack(first: int) -> tuple[Event, ...]:
    """Return incompressible events of 3,000 bytes each."""
    chance = Random(first)
    return tuple(
        Event("d", id=number, data={"text": chance.randbytes(1_500).hex()}) for number in range(first, first + PACK)
    )


async def fill_store(store: EventStore, clock: HandClock) -> int:
    """Send packs until one is refused; return how many were acked."""
    for acked in range(10_000):
        if (await accept(store, clock, *pack(acked * PACK))).refusal:
            return acked
    raise AssertionError("never full")


def write_facts(store: EventStore) -> None:
    for number in range(FACTS_MAX):
        store.outbox.set_fact("a fact", f"{number}" * FACT_BYTES)


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize(("megabytes", "ends_while_it_serves"), [(24, True), (24, False), (48, True)])
async def test_a_disk_that_the_log_has_taken_while_a_reader_held_it_is_used_again_once_the_reader_ends(
    tmp_path: Path, clock: HandClock, megabytes: int, *, ends_while_it_serves: bool
) -> None:
    with small_disk(tmp_path / "disk", megabytes) as folder, ExitStack() as reading:
        path = folder / FILE_NAME
        async with make_store(folder, clock) as store:
            await accept(store, clock, Event("d", id="first"))
            reading.enter_context(holding_the_log(folder))
            acked = await fill_store(store, clock)
            assert (await accept(store, clock, *pack(0))).duplicates == PACK
            store.outbox.set_fact("a fact", "the reserve takes it")
            # Facts represent all writes besides events: marks, deletes, sealing.
            with pytest.raises(OutboxError):
                write_facts(store)
            assert disk_space.free_bytes(path) > 0
            if ends_while_it_serves:
                reading.close()
                assert not store.trouble(trial=True)
                store.outbox.set_fact("a fact", "the reader has ended")
        reading.close()
        async with make_store(folder, clock) as store:
            assert not store.trouble(trial=True)
            assert (await accept(store, clock, *pack(0))).duplicates == PACK
            assert sum(b'"device":"d"' in event.tail for event in stored_events(store)) == acked * PACK + 1
            process_all(store)
            assert (await accept(store, clock, *pack(10**6))).accepted == PACK


@pytest.mark.guarantee(3)
async def test_a_segment_which_takes_room_first_waits_until_there_is_some(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_store(tmp_path, clock, segment_events=32) as store:
        for number in range(20):
            await accept(store, clock, Event("d", id=number))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES + (64 << 10))
        for number in range(20, 60):
            if (await accept(store, clock, Event("d", id=number))).refusal:
                break
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES - 1)
        store.trouble()  # the turn that had still found room is over
        before = len(sealed(tmp_path))
        take_turns(store, 100)
        assert len(sealed(tmp_path)) == before
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 1 << 40)
        for number in range(60, 100):
            assert (await accept(store, clock, Event("d", id=number))).accepted == 1
        take_turns(store, 500)
        assert len(sealed(tmp_path)) > before


@pytest.mark.guarantee(3)
async def test_what_is_dropped_on_a_full_disk_is_what_is_missing_and_no_more(tmp_path: Path, clock: HandClock) -> None:
    with small_disk(tmp_path / "disk", 40) as folder:
        state = folder / "state"
        async with make_store(state, clock, when_full="drop-oldest") as store:
            for number in range(150):
                await accept(store, clock, *pack(number * PACK))
            before, filler = store.counts().new, folder / "filler"
            for number in range(150, 180):
                take_all_but(filler, 3 << 20)  # other programs take all space that the store returns
                assert (await accept(store, clock, *pack(number * PACK))).accepted == PACK
                clock.pass_seconds(11)
                store.trouble()  # an iteration of the writer, which may return space
            assert store.counts().new > before / 2
            assert not store.failed.done()
            declarations = sum(b"gateway.gap" in event.tail for event in stored_events(store))
            assert 0 < declarations < 30


def take_all_but(filler: Path, bytes_left: int) -> None:
    with filler.open("ab", buffering=0) as file:
        while (room := disk_space.free_bytes(filler) - bytes_left) > 0:
            file.write(bytes(min(room, 1 << 20)))
