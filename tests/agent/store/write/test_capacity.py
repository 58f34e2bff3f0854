"""A full store: processed events are removed first, and the oldest only where configured, and declared."""

import json
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from agent.store.schema import database, disk_space
from agent.store.write.capacity import DROPPED, Capacity
from agent.store.write.decision import STORE_FULL
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, batch, make_store, nearly_full, stored_events

BYTES_MAX = 400_000


def event(number: int) -> Event:
    return Event("d", id=number, data={"text": "x" * 4000})


async def fill(store: EventStore, clock: HandClock, first: int) -> int:
    """Send until an event is refused; return its number."""
    number = first
    while not (await accept(store, clock, event(number))).refusal:
        number += 1
        assert number < first + 1000
    return number


def declared(events: list[StoredEvent]) -> list[list[object]]:
    gaps = [json.loads(b"{" + event.tail + b"}")["data"] for event in events if b"gateway.gap" in event.tail]
    assert {gap["reason"] for gap in gaps} <= {DROPPED}
    return [labels for gap in gaps for labels in gap["labels"]]


async def test_what_the_file_system_says_is_never_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    at_most, exactly, found = Capacity._bytes_at_most, Capacity._bytes, list[int]()

    def noting(capacity: Capacity) -> int:
        found.append(at_most(capacity) - exactly(capacity))
        return exactly(capacity)

    nearly_full(monkeypatch)
    monkeypatch.setattr(Capacity, "_bytes", noting)
    async with make_store(tmp_path, clock, max_bytes=8 * BYTES_MAX, keep_processed_seconds=0) as store:
        await fill(store, clock, 1)
        store.outbox.mark_forwarded(batch(1, stored_events(store)[-1].position))
        store.outbox.mark_processed(store.outbox.forwarded())
        clock.pass_seconds(100)
        await fill(store, clock, 2000)
    assert len(found) > 100
    assert min(found) >= 0


async def test_what_is_processed_makes_room_before_its_time(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX, keep_processed_seconds=10**9) as store:
        number = await fill(store, clock, 1)
        last = stored_events(store)[-1].position
        store.outbox.mark_forwarded(batch(1, last))
        store.outbox.mark_processed(store.outbox.forwarded())
        assert (await accept(store, clock, event(number))).accepted == 1
        assert not declared(stored_events(store))


@pytest.mark.parametrize("forwarded", [0, 40])
async def test_the_oldest_are_dropped_only_where_configured_and_declared(tmp_path: Path, forwarded: int) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        sent = 200
        for number in range(1, sent + 1):
            assert (await accept(store, clock, event(number))).accepted == 1
            if number == forwarded:
                store.outbox.mark_forwarded(batch(1, forwarded))
        events = stored_events(store)
        assert not store.failed.done()
        kept = {event.label.sequence for event in events}
        lost = {
            sequence for _, first, last in declared(events) for sequence in range(int(str(first)), int(str(last)) + 1)
        }
        assert not kept & lost
        assert kept | lost == set(range(1, max(kept) + 1))
        assert len(lost) > 80
        assert not store.outbox.forwarded()
        assert (await accept(store, clock, event(sent))).duplicates == 1
        assert (await accept(store, clock, event(1))).accepted == 1
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        assert {event.label.sequence for event in stored_events(store)} >= {sent}


async def test_copies_alone_drop_nothing(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX) as store:
        number = await fill(store, clock, 1)
        assert (await accept(store, clock, event(number))).refusal == STORE_FULL
        before = len(stored_events(store))
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        assert (await accept(store, clock, event(number - 1))).duplicates == 1
        assert len(stored_events(store)) == before


async def test_while_a_reader_holds_the_log_nothing_is_dropped_and_nobody_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, max_bytes=4 * BYTES_MAX, when_full="drop-oldest") as store:
        for number in range(20):
            assert (await accept(store, clock, event(number))).accepted == 1
        with closing(database.open_for_reading(tmp_path / FILE_NAME)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            number = await fill(store, clock, 100)
            start = monotonic()
            for again in range(10):
                refusal = (await accept(store, clock, event(number + again))).refusal
                assert "its log cannot be emptied while another process reads it" in refusal
            assert store.trouble() == refusal
            assert (await accept(store, clock, event(100))).duplicates == 1
            assert monotonic() - start < 5
            assert store.counts()[3] == 0
            assert len(stored_events(store)) == 1 + 20 + number - 100
        assert (await accept(store, clock, event(number))).accepted == 1
        assert store.trouble() == ""
        assert store.counts()[3] == 0
    assert [record.message.split()[0] for record in caplog.records if "store=log" in record.message] == [
        "store=log-held",
        "store=log-released",
    ]


async def test_a_reader_that_keeps_the_log_growing_is_named_before_the_store_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> list[str]:
        return [record.message.split()[0] for record in caplog.records if "store=log" in record.message]

    clock = HandClock()
    monkeypatch.setattr(disk_space, "LOG_BYTES_EXPECTED", 200_000)
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, event(0))
        with closing(database.open_for_reading(tmp_path / FILE_NAME)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            for number in range(1, 60):
                await accept(store, clock, event(number))
            assert not said()
            clock.pass_seconds(11)
            store.trouble()  # a turn of the writer
            store.trouble()
            assert said() == ["store=log-held"]
        clock.pass_seconds(11)
        store.trouble()
        store.trouble()
        assert said() == ["store=log-held", "store=log-released"]


async def test_a_proven_copy_drops_nothing(tmp_path: Path) -> None:
    clock = HandClock()
    key = b"p" * 16
    nameless = Event("d", data={"n": 1})
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX) as store:
        await accept(store, clock, nameless, key=key)
        await fill(store, clock, 1)
        before = len(stored_events(store))
    async with make_store(tmp_path, clock, max_bytes=BYTES_MAX, when_full="drop-oldest") as store:
        assert (await accept(store, clock, nameless, key=key)).duplicates == 1
        assert len(stored_events(store)) == before
