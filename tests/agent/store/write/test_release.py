"""Removal from the outbox without a receipt: events released before they are sent, given up, or expired."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database, tables
from contract.event import Event
from tests.agent.store.stores import (
    Faulty,
    HandClock,
    accept,
    crash_image,
    declared,
    make_store,
    mark_processed,
    stored_events,
)
from tests.agent.store.test_event_store import ONE, TWO

NOTE = ("flight", "here")


def kept_commits(folder: Path) -> list[int]:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return [row[0] for row in connection.execute("SELECT first_position FROM events ORDER BY first_position")]


def given_up(store: EventStore) -> list[tuple[str, int, int]]:
    """Return reason and sequences of each range that a gap declares."""
    gaps = declared(stored_events(store))
    return [(gap["reason"], first, last) for gap in gaps for _, first, last in gap["labels"]]


@pytest.mark.guarantee(4)
async def test_what_is_released_stays_so_after_a_kill_and_is_purged_at_once(tmp_path: Path) -> None:
    async with make_store(tmp_path / "store") as store:
        await accept(store, ONE)
        await accept(store, TWO)
        store.outbox.release(1, 2, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image) as store:
        assert [event.position for event in stored_events(store)] == [3]
        assert store.outbox.fact("flight") == "here"
        assert (await accept(store, ONE)).duplicates == 1
        assert kept_commits(image)[0] == 3


async def test_marks_that_wait_do_not_undo_a_release(tmp_path: Path) -> None:
    async with make_store(tmp_path / "store") as store:
        await accept(store, *(Event("d", id=number, data={}) for number in range(8)))
        mark_processed(store, 1, 2)
        store.outbox.release(5, 6, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    with closing(database.open_for_reading(image / FILE_NAME)) as connection:
        assert tables.load_processed(connection) == [(1, 2), (5, 6)]


async def test_a_release_that_fails_changes_nothing(tmp_path: Path, faulty: Faulty) -> None:
    async with make_store(tmp_path, connect=faulty.connect) as store:
        await accept(store, ONE)
        faulty.fault = "INSERT OR REPLACE INTO facts"
        with pytest.raises(OutboxError, match="disk is full"):
            store.outbox.release(1, 2, NOTE)
        faulty.fault = ""
        assert [event.position for event in stored_events(store)] == [1, 2]


@pytest.mark.guarantee(4)
async def test_what_is_released_counts_as_released_though_its_purge_fails_and_a_later_turn_purges_it(
    tmp_path: Path, clock: HandClock, faulty: Faulty
) -> None:
    async with make_store(tmp_path, clock, connect=faulty.connect) as store:
        await accept(store, ONE)
        faulty.fault = "DELETE FROM events"
        assert store.outbox.release(1, 2, NOTE)
        assert faulty.hits
        faulty.fault = ""
        assert store.outbox.fact("flight") == "here"
        await accept(store, TWO)
        clock.pass_seconds(6)
        store.trouble()
        store.trouble()  # a turn of the writer later
        assert kept_commits(tmp_path) == [3]
        assert store.outbox.release(3, 3, NOTE)
        assert kept_commits(tmp_path) == []


async def test_what_is_refused_after_its_release_is_declared_once_and_its_resend_is_new(tmp_path: Path) -> None:
    told: list[bool] = []
    async with make_store(tmp_path / "store") as store:
        store.add_transport(int, lambda: told.append(True))
        await accept(store, ONE, TWO)
        store.outbox.release(1, 3, NOTE)
        for _ in range(2):
            store.outbox.give_up(2, "too large for Kafka")
        await asyncio.sleep(0)
        assert told == [True], "the transports forget what they answer themselves"
        assert store.counts() == EventCounts(1, 0, 0, 1)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image) as store:
        assert given_up(store) == [("too large for Kafka", 2, 2)]
        outcome = await accept(store, ONE, TWO)
        assert (outcome.accepted, outcome.duplicates) == (1, 1)


LIFETIME = 3_600.0
FIRST = Event("urn:a", id=1, data={"x": 1})


async def fill(store: EventStore, clock: HandClock, first: int, count: int, seconds: float) -> None:
    """Store events, each so long after the one before."""
    for number in range(first, first + count):
        await accept(store, replace(FIRST, id=number))
        clock.pass_seconds(seconds)


async def test_the_first_events_that_are_too_old_become_one_gap_and_their_resend_is_new(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 10, 600)  # positions 2 to 11
        epoch = store.outbox.epoch()
        assert store.outbox.expire(2, 11, LIFETIME) == 4
        assert declared(stored_events(store)) == [{"reason": "expired", "count": 4, "labels": [[epoch, 2, 5]]}]
        assert store.counts() == EventCounts(8, 0, 0, 4)
        assert [event.position for event in stored_events(store)] == [1, 6, 7, 8, 9, 10, 11, 12]
        assert store.outbox.expire(6, 11, LIFETIME) == 0
        again = await accept(store, replace(FIRST, id=2), replace(FIRST, id=9))
        assert (again.accepted, again.duplicates) == (1, 1)


@pytest.mark.guarantee(4)
async def test_an_age_is_running_time_whatever_the_wall_clock_says(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 2, 1_000)
        clock.now += 10 * 86_400_000  # set forward
        assert store.outbox.expire(2, 3, LIFETIME) == 0
    clock.pass_seconds(86_400)  # while no agent runs
    async with make_store(tmp_path, clock) as store:
        assert store.outbox.expire(2, 3, LIFETIME) == 0
        clock.pass_seconds(LIFETIME + 1)
        assert store.outbox.expire(2, 3, LIFETIME) == 2


async def test_sealed_events_expire_with_the_last_of_their_segment(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, segment_events=8) as store:
        await fill(store, clock, 1, 40, 600)
        while not list(store._memory.fingerprints.segments()):
            clock.pass_seconds(0.1)
            await store.barrier()
        expired = store.outbox.expire(2, 41, LIFETIME)
        assert 35 - 8 <= expired <= 35  # those of the segment of the first young one wait for it
        assert sum(gap["count"] for gap in declared(stored_events(store))) == expired


async def test_what_is_past_the_retention_has_expired(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, retention_seconds=LIFETIME) as store:
        await fill(store, clock, 1, 3, 1)
        clock.pass_seconds(2 * LIFETIME)
        await fill(store, clock, 4, 1, 1)
        await store.barrier()
        assert store.outbox.expire(2, 5, LIFETIME) == 3


@pytest.mark.guarantee(4)
async def test_what_was_dropped_or_given_up_meanwhile_does_not_expire_as_well(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 10, 600)  # positions 2 to 11
        epoch = store.outbox.epoch()
        store.outbox.give_up(3, "dropped")  # as on a full store, between the reading and the expiry
        assert store.outbox.expire(2, 11, LIFETIME) == 3
        assert declared(stored_events(store)) == [
            {"reason": "dropped", "count": 1, "labels": [[epoch, 3, 3]]},
            {"reason": "expired", "count": 3, "labels": [[epoch, 2, 2], [epoch, 4, 5]]},
        ]
        assert store.counts().lost == 4


@pytest.mark.guarantee(4)
async def test_a_kill_before_the_declaration_leaves_it_to_the_next_start(
    tmp_path: Path, clock: HandClock, faulty: Faulty
) -> None:
    async with make_store(tmp_path / "live", clock, connect=faulty.connect) as store:
        await fill(store, clock, 1, 10, 600)
        epoch = store.outbox.epoch()
        faulty.fault = "INSERT INTO events"  # the gap is on disk, its declaration is not
        assert store.outbox.expire(2, 11, LIFETIME) == 4
        assert declared(stored_events(store)) == []
        image = crash_image(tmp_path / "live", tmp_path / "image")
    for _ in range(2):
        async with make_store(image, clock) as store:
            await store.barrier()
            assert declared(stored_events(store)) == [{"reason": "expired", "count": 4, "labels": [[epoch, 2, 5]]}]
            assert store.outbox.expire(2, 11, LIFETIME) == 0
