"""Space is returned to the file system, and the bound includes everything that the store writes."""

import random
from pathlib import Path

import pytest

from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, batch, make_store, process_all, stored_events

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
TEXT_BYTES = 4_000
EVENTS, PER_COMMIT = 8_000, 100


def incompressible(number: int) -> Event:
    return Event(DEVICE, id=number, data={"text": random.Random(number).randbytes(TEXT_BYTES // 2).hex()})


async def fill(store: EventStore, clock: HandClock) -> None:
    for start in range(0, EVENTS, PER_COMMIT):
        await accept(store, clock, *(incompressible(start + place) for place in range(PER_COMMIT)))


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.guarantee(3)
async def test_a_backlog_that_has_drained_gives_its_room_back_while_the_store_serves(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        await fill(store, clock)
        full = disk_bytes(tmp_path)
        assert full > EVENTS * TEXT_BYTES / 2
        process_all(store)
        sizes = []
        log_bytes = 0
        for number in range(200):
            clock.pass_seconds(11)
            await accept(store, clock, Event(DEVICE, id=f"while shrinking {number}"))
            log_bytes = max(log_bytes, (tmp_path / f"{FILE_NAME}-wal").stat().st_size)
            sizes.append((tmp_path / FILE_NAME).stat().st_size)
        assert sizes[-1] < full / 2
        assert log_bytes < full / 2, "what is purged is written again"
        assert len(set(sizes)) > 3  # in steps, not at once
        assert sum(DEVICE.encode() in event.tail for event in stored_events(store)) == 200
        assert (await accept(store, clock, incompressible(17))).duplicates == 1
    assert disk_bytes(tmp_path) < 12 << 20


@pytest.mark.guarantee(3)
@pytest.mark.heavy
async def test_the_bound_holds_for_all_files_whatever_is_written(tmp_path: Path) -> None:
    clock, bound = HandClock(), 4 << 20
    async with make_store(tmp_path, clock, max_bytes=bound, segment_events=64, keep_processed_seconds=0) as store:
        refused, largest = 0, 0
        for number in range(3000):
            outcome = await accept(store, clock, incompressible(number))
            refused += bool(outcome.refusal)
            largest = max(largest, disk_bytes(tmp_path))
            if number % 500 == 499 and (found := store.outbox.read(0, 200, 1 << 30)):
                store.outbox.mark_forwarded(batch(found[0].position, found[-1].position))
                store.outbox.mark_processed(store.outbox.forwarded())
                clock.pass_seconds(60)
        assert refused
        assert largest <= bound + (1 << 20), "beyond the bound by more than a commit"
