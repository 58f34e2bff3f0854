"""Removal from the outbox without a receipt: events released before they are sent, or given up."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database, tables
from contract.event import Event
from tests.agent.store.stores import (
    GATEWAY,
    FaultyConnection,
    HandClock,
    accept,
    batch,
    crash_image,
    declared,
    make_store,
    open_faulty,
    stored_events,
)
from tests.agent.store.test_event_store import KEY, NAMELESS, ONE, TWO

NOTE = ("flight", "here")


def kept_commits(folder: Path) -> list[int]:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return [row[0] for row in connection.execute("SELECT first_position FROM events ORDER BY first_position")]


def given_up(store: EventStore) -> list[tuple[str, int, int]]:
    """Return reason and sequences of each range that a gap declares."""
    gaps = declared(stored_events(store))
    return [(gap["reason"], first, last) for gap in gaps for _, first, last in gap["labels"]]


@pytest.mark.guarantee(4)
async def test_what_is_released_stays_so_after_a_kill_and_is_purged_at_once(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path / "store", clock) as store:
        await accept(store, clock, ONE)
        await accept(store, clock, TWO)
        store.outbox.release(1, 2, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image, clock) as store:
        assert [event.position for event in stored_events(store)] == [3]
        assert store.outbox.fact("flight") == "here"
        assert (await accept(store, clock, ONE)).duplicates == 1
        assert kept_commits(image)[0] == 3


async def test_marks_that_wait_do_not_undo_a_release(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path / "store", clock) as store:
        await accept(store, clock, *(Event("d", id=number, data={}) for number in range(8)))
        store.outbox.mark_forwarded(batch(1, 2))
        store.outbox.mark_processed(store.outbox.forwarded())
        store.outbox.release(5, 6, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    with closing(database.open_for_reading(image / FILE_NAME)) as connection:
        assert tables.load_processed(connection) == [(1, 2), (5, 6)]


async def test_a_release_that_fails_changes_nothing(
    tmp_path: Path, clock: HandClock, faulty: type[FaultyConnection]
) -> None:
    async with make_store(tmp_path, clock, connect=open_faulty(faulty)) as store:
        await accept(store, clock, ONE)
        faulty.fault = "INSERT OR REPLACE INTO facts"
        with pytest.raises(OutboxError):
            store.outbox.release(1, 2, NOTE)
        faulty.fault = ""
        assert [event.position for event in stored_events(store)] == [1, 2]


@pytest.mark.guarantee(4)
async def test_what_is_released_counts_as_released_though_its_purge_fails_and_a_later_turn_purges_it(
    tmp_path: Path, clock: HandClock, faulty: type[FaultyConnection]
) -> None:
    async with make_store(tmp_path, clock, connect=open_faulty(faulty)) as store:
        await accept(store, clock, ONE)
        faulty.fault = "DELETE FROM events"
        assert store.outbox.release(1, 2, NOTE)
        assert faulty.hits
        faulty.fault = ""
        assert store.outbox.fact("flight") == "here"
        await accept(store, clock, TWO)
        clock.pass_seconds(6)
        store.trouble()
        store.trouble()  # a turn of the writer later
        assert kept_commits(tmp_path) == [3]
        assert store.outbox.release(3, 3, NOTE)
        assert kept_commits(tmp_path) == []


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("event", [ONE, NAMELESS])
async def test_a_resend_of_what_was_given_up_is_stored_as_new(tmp_path: Path, event: Event, clock: HandClock) -> None:
    told: list[bool] = []
    async with make_store(tmp_path / "store", clock) as store:
        store.add_transport(int, lambda: told.append(True))
        await accept(store, clock, event, key=KEY)
        store.outbox.give_up(2, "too large for Kafka")
        image = crash_image(tmp_path / "store", tmp_path / "image")
        assert (await accept(store, clock, event, key=KEY)).accepted == 1
        await asyncio.sleep(0)
        assert told == [True]
        assert read_status(tmp_path / "store", GATEWAY).events.lost == 1
    async with make_store(image, clock) as store:
        assert (await accept(store, clock, event, key=KEY)).accepted == 1
        assert given_up(store) == [("too large for Kafka", 2, 2)]


async def test_what_is_refused_after_its_release_is_declared_once_and_its_resend_is_new(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path / "store", clock) as store:
        await accept(store, clock, ONE, TWO)
        store.outbox.release(1, 3, NOTE)
        for _ in range(2):
            store.outbox.give_up(2, "too large for Kafka")
        assert store.counts() == EventCounts(1, 0, 0, 1)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image, clock) as store:
        assert given_up(store) == [("too large for Kafka", 2, 2)]
        outcome = await accept(store, clock, ONE, TWO)
        assert (outcome.accepted, outcome.duplicates) == (1, 1)


async def test_what_a_full_store_dropped_before_its_damage_was_found_is_declared_once(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, ONE, TWO)
        store.outbox.give_up(2, "dropped")
        store._writer.call(lambda: store._committer.give_up(2, 3, "wrong checksum"))
        assert given_up(store) == [("dropped", 2, 2), ("wrong checksum", 3, 3)]


async def test_two_openings_never_have_one_epoch_though_nothing_was_stored_under_the_first(
    tmp_path: Path, clock: HandClock
) -> None:
    epochs = set()
    for _ in range(3):
        async with make_store(tmp_path, clock) as store:
            epochs.add(store.outbox.epoch())
    assert len(epochs) == 3
