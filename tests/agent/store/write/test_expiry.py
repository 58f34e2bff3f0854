"""Events that were not sent within a lane's time to live: given up, declared, and new when they come again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from contract.event import Event
from tests.agent.store.stores import (
    FaultyConnection,
    HandClock,
    accept,
    crash_image,
    declared,
    make_store,
    open_faulty,
    stored_events,
)

LIFETIME = 3_600.0
ONE = Event("urn:a", id=1, data={"x": 1})


async def fill(store: EventStore, clock: HandClock, first: int, count: int, seconds: float) -> None:
    """Store events, each so long after the one before."""
    for number in range(first, first + count):
        await accept(store, clock, replace(ONE, id=number))
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
        again = await accept(store, clock, replace(ONE, id=2), replace(ONE, id=9))
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
            await store.turn()
        expired = store.outbox.expire(2, 41, LIFETIME)
        assert 35 - 8 <= expired <= 35  # those of the segment of the first young one wait for it
        assert sum(gap["count"] for gap in declared(stored_events(store))) == expired


async def test_what_is_past_the_retention_has_expired(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, retention_seconds=LIFETIME) as store:
        await fill(store, clock, 1, 3, 1)
        clock.pass_seconds(2 * LIFETIME)
        await fill(store, clock, 4, 1, 1)
        await store.turn()
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
    tmp_path: Path, clock: HandClock, faulty: type[FaultyConnection]
) -> None:
    async with make_store(tmp_path / "live", clock, connect=open_faulty(faulty)) as store:
        await fill(store, clock, 1, 10, 600)
        epoch = store.outbox.epoch()
        faulty.fault = "INSERT INTO events"  # the gap is on disk, its declaration is not
        assert store.outbox.expire(2, 11, LIFETIME) == 4
        assert declared(stored_events(store)) == []
        image = crash_image(tmp_path / "live", tmp_path / "image")
    for _ in range(2):
        async with make_store(image, clock) as store:
            await store.turn()
            assert declared(stored_events(store)) == [{"reason": "expired", "count": 4, "labels": [[epoch, 2, 5]]}]
            assert store.outbox.expire(2, 11, LIFETIME) == 0
