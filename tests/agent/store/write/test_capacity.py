"""A full store: processed events make space, the oldest only where configured; the disk gets space back."""

import random
from dataclasses import astuple, replace
from pathlib import Path
from time import monotonic

import pytest

from agent.status import read_status
from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.schema import disk_space
from agent.store.schema.gaps import Gap
from agent.store.write.capacity import DROPPED, Capacity
from agent.store.write.decision import STORE_FULL
from contract.event import Event
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    accept,
    batch,
    crash_image,
    declared,
    holding_the_log,
    make_store,
    mark_processed,
    nearly_full,
    process_all,
    stored_events,
)

BYTES_MAX = 400_000
KEY = b"p" * 16


def event(number: int) -> Event:
    return Event("d", id=number, data={"text": "x" * 4000})


async def fill(store: EventStore, first: int) -> int:
    """Send until an event is refused; return its number."""
    number = first
    while not (await accept(store, event(number))).refusal:
        number += 1
        assert number < first + 1000
    return number


async def test_what_the_file_system_says_is_never_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    at_most, exactly, found = Capacity._bytes_at_most, Capacity._bytes, list[int]()

    def noting(capacity: Capacity) -> int:
        found.append(at_most(capacity) - exactly(capacity))
        return exactly(capacity)

    nearly_full(monkeypatch)
    monkeypatch.setattr(Capacity, "_bytes", noting)
    async with make_store(tmp_path, clock, max_bytes=8 * BYTES_MAX, keep_processed_seconds=0) as store:
        await fill(store, 1)
        process_all(store)
        clock.pass_seconds(100)
        await fill(store, 2000)
    assert len(found) > 100
    assert min(found) >= 0


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("forwarded", [0, 40])
async def test_the_oldest_are_dropped_only_where_configured_and_declared(tmp_path: Path, forwarded: int) -> None:
    async with make_store(tmp_path, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        sent = 200
        for number in range(1, sent + 1):
            assert (await accept(store, event(number))).accepted == 1
            if number == forwarded:
                store.outbox.mark_forwarded(batch(1, forwarded))
        events = stored_events(store)
        assert not store.failed.done()
        kept = {event.label.sequence for event in events}
        gaps = declared(events)
        assert {gap["reason"] for gap in gaps} == {DROPPED}
        ranges = [label[1:] for gap in gaps for label in gap["labels"]]
        lost = {sequence for first, last in ranges for sequence in range(first, last + 1)}
        assert not kept & lost
        assert kept | lost == set(range(1, max(kept) + 1))
        assert len(lost) > 80
        assert not store.outbox.forwarded()
        assert (await accept(store, event(sent))).duplicates == 1
        assert (await accept(store, event(1))).accepted == 1
    async with make_store(tmp_path, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        assert {event.label.sequence for event in stored_events(store)} >= {sent}


async def test_what_was_dropped_in_flight_is_lost_and_the_rest_of_its_batch_is_forwarded(tmp_path: Path) -> None:
    async with make_store(tmp_path, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        number = 1
        while not store.counts().lost:
            await accept(store, event(number))
            number += 1
        lost = store.counts().lost
        new = store.counts().new
        store.outbox.mark_forwarded(batch(1, lost))  # their ack comes after they were dropped
        store.outbox.mark_forwarded(batch(lost - 1, lost + 5, lost - 1))
        assert store.counts() == EventCounts(new - 5, 5, 0, lost)
        store.outbox.set_fact("any", "writes the marks")
        assert astuple(read_status(tmp_path, GATEWAY).events) == (new - 5, 5, 0, lost)
        (rest,) = store.outbox.forwarded()
        assert rest == replace(batch(lost - 1, lost + 5, lost - 1), first=lost + 1)
        store.outbox.mark_processed([rest])
        assert store.counts() == EventCounts(new - 5, 0, 5, lost)


async def test_what_is_dropped_of_a_batch_is_lost_and_its_rest_waits_for_the_receipt(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, *(event(number) for number in range(9)))
        store.outbox.mark_forwarded(batch(1, 8))  # after the full store has chosen what it drops
        store.outbox.give_up(4, DROPPED)
        assert store.counts() == EventCounts(3, 7, 0, 1)
        store.outbox.set_fact("any", "writes the marks")
        assert read_status(tmp_path, GATEWAY).events.forwarded == 7
        for gap in (Gap(1, 2, DROPPED), Gap(7, 7, DROPPED)):
            store._writer.call(lambda: store._committer.removal.give_up(gap))  # noqa: B023
        image = crash_image(tmp_path, tmp_path / "image")
        rest = store.outbox.forwarded()
        assert [(part.first, part.last) for part in rest] == [(3, 3), (5, 6), (8, 8)]
        store.outbox.return_batches(rest[:1])
        store.outbox.mark_processed(rest[1:])
        assert replace(store.counts(), new=0) == EventCounts(0, 0, 3, 4)
    async with make_store(tmp_path) as store:
        assert {found.position for found in stored_events(store)} >= {3, 9, 10}
        assert store.outbox.forwarded() == ()
    for _ in range(2):  # after a kill each event has one state as well
        async with make_store(image) as store:
            assert store.outbox.forwarded() == rest
            assert replace(store.counts(), new=0) == EventCounts(0, 4, 0, 4)
    assert read_status(image, GATEWAY).events.forwarded == 4


@pytest.mark.guarantee(3)
async def test_copies_and_what_is_refused_anyway_drop_nothing(tmp_path: Path) -> None:
    nameless = Event("d", data={"n": 1})
    async with make_store(tmp_path, max_bytes=BYTES_MAX) as store:
        await accept(store, nameless, key=KEY)
        number = await fill(store, 1)
        assert (await accept(store, event(number))).refusal == STORE_FULL
        before = len(stored_events(store))
    async with make_store(tmp_path, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        assert (await accept(store, event(number - 1))).duplicates == 1
        assert (await accept(store, nameless, key=KEY)).duplicates == 1
        assert (await accept(store, event(number), refusal="too much")).refusal == "too much"
        assert len(stored_events(store)) == before


@pytest.mark.guarantee(3)
async def test_while_a_reader_holds_the_log_nothing_is_dropped_and_nobody_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_store(tmp_path, max_bytes=4 * BYTES_MAX, when_full="drop-oldest") as store:
        for number in range(20):
            assert (await accept(store, event(number))).accepted == 1
        with holding_the_log(tmp_path):
            number = await fill(store, 100)
            start = monotonic()
            for again in range(10):
                refusal = (await accept(store, event(number + again))).refusal
                assert "its log cannot be emptied while another process reads it" in refusal
            assert store.trouble() == refusal
            assert (await accept(store, event(100))).duplicates == 1
            assert monotonic() - start < 5
            assert store.counts().lost == 0
            assert len(stored_events(store)) == 1 + 20 + number - 100
        assert (await accept(store, event(number))).accepted == 1
        assert store.trouble() == ""
        assert store.counts().lost == 0
    assert [record.message.split()[0] for record in caplog.records if "store=log" in record.message] == [
        "store=log-held",
        "store=log-released",
    ]


@pytest.mark.guarantee(3)
async def test_a_reader_that_keeps_the_log_growing_is_named_before_the_store_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, clock: HandClock
) -> None:
    def said() -> list[str]:
        return [record.message.split()[0] for record in caplog.records if "store=log" in record.message]

    monkeypatch.setattr(disk_space, "LOG_BYTES_EXPECTED", 200_000)
    async with make_store(tmp_path, clock) as store:
        await accept(store, event(0))
        with holding_the_log(tmp_path):
            for number in range(1, 60):
                await accept(store, event(number))
            assert not said()
            clock.pass_seconds(11)
            store.trouble()  # a turn of the writer
            store.trouble()
            assert said() == ["store=log-held"]
        clock.pass_seconds(11)
        store.trouble()
        store.trouble()
        assert said() == ["store=log-held", "store=log-released"]


DEVICE = "urn:dev:mac:00158d0001a2b3c4"
TEXT_BYTES = 4_000
EVENTS, PER_COMMIT = 8_000, 100


def incompressible(number: int) -> Event:
    return Event(DEVICE, id=number, data={"text": random.Random(number).randbytes(TEXT_BYTES // 2).hex()})


async def fill_incompressibly(store: EventStore) -> None:
    for start in range(0, EVENTS, PER_COMMIT):
        await accept(store, *(incompressible(start + place) for place in range(PER_COMMIT)))


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.guarantee(3)
async def test_a_backlog_that_has_drained_gives_its_room_back_while_the_store_serves(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        await fill_incompressibly(store)
        full = disk_bytes(tmp_path)
        assert full > EVENTS * TEXT_BYTES / 2
        process_all(store)
        sizes = []
        log_bytes = 0
        for number in range(200):
            clock.pass_seconds(11)
            await accept(store, Event(DEVICE, id=f"while shrinking {number}"))
            log_bytes = max(log_bytes, (tmp_path / f"{FILE_NAME}-wal").stat().st_size)
            sizes.append((tmp_path / FILE_NAME).stat().st_size)
        assert sizes[-1] < full / 2
        assert log_bytes < full / 2, "what is purged is written again"
        assert len(set(sizes)) > 3  # in steps, not at once
        assert sum(DEVICE.encode() in event.tail for event in stored_events(store)) == 200
        assert (await accept(store, incompressible(17))).duplicates == 1
    assert disk_bytes(tmp_path) < 12 << 20


@pytest.mark.guarantee(3)
@pytest.mark.heavy
async def test_the_bound_holds_for_all_files_whatever_is_written(tmp_path: Path) -> None:
    clock, bound = HandClock(), 4 << 20
    async with make_store(tmp_path, clock, max_bytes=bound, segment_events=64, keep_processed_seconds=0) as store:
        refused, largest = 0, 0
        for number in range(3000):
            outcome = await accept(store, incompressible(number))
            refused += bool(outcome.refusal)
            largest = max(largest, disk_bytes(tmp_path))
            if number % 500 == 499 and (found := store.outbox.read(0, 200, 1 << 30)):
                mark_processed(store, found[0].position, found[-1].position)
                clock.pass_seconds(60)
        assert refused
        assert largest <= bound + (1 << 20), "beyond the bound by more than a commit"
