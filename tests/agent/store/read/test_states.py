"""The states of events in a real file: in Kafka, in the table, purged; and positions are never reused."""

from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.port import Batch
from contract.event import Event
from tests.agent.store.stores import GATEWAY, HandClock, accept, batch, make_store, process_all, stored_events
from tests.agent.store.test_event_store import DEVICE, ONE, TWO


async def test_states_follow_from_the_batches_and_survive_a_restart(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, *(Event(DEVICE, id=number) for number in range(9)))
        store.outbox.mark_forwarded(batch(1, 4))
        store.outbox.mark_forwarded(batch(5, 7, 4))
        assert [event.position for event in stored_events(store)] == [8, 9, 10]
    status = read_status(tmp_path, GATEWAY)
    assert (status.events.new, status.events.forwarded, status.events.processed) == (3, 7, 0)
    async with make_store(tmp_path, clock) as store:
        waiting = store.outbox.forwarded()
        assert [(found.first, found.last) for found in waiting] == [(1, 7)]
        store.outbox.mark_processed(waiting)
    status = read_status(tmp_path, GATEWAY)
    assert (status.events.new, status.events.forwarded, status.events.processed) == (3, 0, 7)
    assert (status.accepted, status.epochs) == (9, 1)


@pytest.mark.guarantee(4)
async def test_only_processed_events_are_purged_and_their_positions_never_come_again(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock, keep_processed_seconds=60) as store:
        await accept(store, clock, ONE)
        await accept(store, clock, TWO)
        process_all(store)
        clock.pass_seconds(3600)
        await accept(store, clock, Event(DEVICE, id=3))
        await accept(store, clock, Event(DEVICE, id=4))
    status = read_status(tmp_path, GATEWAY)
    assert (status.events.new, status.events.processed) == (2, 0)
    async with make_store(tmp_path, clock) as store:
        assert [event.position for event in stored_events(store)] == [4, 5]
        assert (await accept(store, clock, ONE)).duplicates == 1
        await accept(store, clock, Event(DEVICE, id=5))
        assert [event.position for event in stored_events(store)] == [4, 5, 6, 7]


async def test_a_commit_is_purged_only_as_a_whole(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        await accept(store, clock, *(Event(DEVICE, id=number) for number in range(5)))
        store.outbox.mark_forwarded(batch(1, 3))
        store.outbox.mark_processed(store.outbox.forwarded())
        clock.pass_seconds(60)
        await accept(store, clock, TWO)
        await accept(store, clock, Event(DEVICE, id=9))
        assert [event.position for event in stored_events(store)] == [4, 5, 6, 7, 8]


async def test_a_stale_batch_is_not_marked_processed(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, ONE, TWO)
        store.outbox.mark_processed([Batch(1, 3, "never forwarded")])
        assert len(stored_events(store)) == 3
