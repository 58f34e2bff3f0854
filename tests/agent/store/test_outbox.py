"""One suite for the port `Outbox`: the real store and the outbox in memory have the same guarantees."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.store.port import Outbox
from contract.event import Event
from tests.agent.store.stores import accept, batch, make_store
from tests.support.memory_outbox import MemoryOutbox


@dataclass(frozen=True, slots=True)
class Case:
    """An outbox, and a function that stores events in it."""

    outbox: Outbox
    append: Callable[[int], Awaitable[None]]
    """Append this number of events."""


@pytest.fixture(params=["memory", "store"])
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    if request.param == "memory":
        memory = MemoryOutbox()

        async def remember(count: int) -> None:
            memory.append(*(Event("d", data={}) for _ in range(count)))

        yield Case(memory, remember)
        return
    async with make_store(tmp_path) as store:
        started = False

        async def keep(count: int) -> None:
            """Append this number of events, including the gateway's own first one."""
            nonlocal started
            if new := count - (not started):
                await accept(store, *(Event("d", data={}) for _ in range(new)))
                started = True

        yield Case(store.outbox, keep)


def positions(outbox: Outbox, after: int = 0, events_max: int = 100, bytes_max: int = 1 << 20) -> list[int]:
    return [event.position for event in outbox.read(after, events_max, bytes_max)]


async def test_events_are_read_in_order_from_any_position(case: Case) -> None:
    await case.append(7)
    assert positions(case.outbox) == [1, 2, 3, 4, 5, 6, 7]
    assert positions(case.outbox, after=4) == [5, 6, 7]
    assert positions(case.outbox, after=7) == []
    assert positions(case.outbox, events_max=2) == [1, 2]


async def test_a_read_gives_at_least_one_event_whatever_its_size(case: Case) -> None:
    await case.append(5)
    assert positions(case.outbox, bytes_max=1) == [1]


async def test_forwarded_events_are_not_read_again_and_no_read_spans_them(case: Case) -> None:
    await case.append(9)
    case.outbox.mark_forwarded(batch(4, 6))
    assert positions(case.outbox) == [1, 2, 3]
    assert positions(case.outbox, after=3) == [7, 8, 9]
    case.outbox.mark_forwarded(batch(1, 3))
    assert positions(case.outbox) == [7, 8, 9]


async def test_batches_wait_for_their_receipt_in_order(case: Case) -> None:
    await case.append(9)
    case.outbox.mark_forwarded(batch(7, 9, 100))
    case.outbox.mark_forwarded(batch(1, 3))
    assert [(found.first, found.last) for found in case.outbox.forwarded()] == [(1, 3), (7, 9)]
    case.outbox.mark_processed(case.outbox.forwarded()[:1])
    assert [(found.first, found.last) for found in case.outbox.forwarded()] == [(7, 9)]
    assert positions(case.outbox) == [4, 5, 6]


async def test_returned_batches_are_read_again_and_wake_the_forwarder(case: Case) -> None:
    await case.append(6)
    case.outbox.mark_forwarded(batch(1, 6))
    assert not case.outbox.wait(0, 0)
    case.outbox.return_batches(case.outbox.forwarded())
    assert case.outbox.wait(6, 0)
    assert case.outbox.pop_returned()
    assert not case.outbox.pop_returned()
    assert positions(case.outbox) == [1, 2, 3, 4, 5, 6]


async def test_a_waiting_forwarder_is_woken_by_an_event(case: Case) -> None:
    woken = threading.Event()

    def wait() -> None:
        if case.outbox.wait(0, 60):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    await case.append(2)
    thread.join(60)
    assert woken.is_set()


async def test_facts_are_remembered(case: Case) -> None:
    assert case.outbox.fact("name") is None
    case.outbox.set_fact("name", "one")
    case.outbox.set_fact("name", "two")
    assert case.outbox.fact("name") == "two"


async def test_a_note_is_a_fact_beside_the_mark(case: Case) -> None:
    await case.append(3)
    case.outbox.mark_forwarded(batch(1, 3), ("name", "noted"))
    case.outbox.set_fact("other", "so that the mark is on disk")
    assert case.outbox.fact("name") == "noted"


async def test_what_is_released_is_never_read_again(case: Case) -> None:
    await case.append(9)
    assert case.outbox.release(1, 4, ("flight", "1-4"))
    assert positions(case.outbox) == [5, 6, 7, 8, 9]
    assert case.outbox.fact("flight") == "1-4"
    assert case.outbox.forwarded() == [] or case.outbox.forwarded() == ()


async def test_a_release_of_what_is_in_part_given_up_changes_nothing(case: Case) -> None:
    await case.append(5)
    case.outbox.give_up(3, "dropped")
    assert not case.outbox.release(1, 5, ("flight", "1-5"))
    assert positions(case.outbox) == [1, 2]
    assert case.outbox.fact("flight") is None


async def test_what_is_given_up_is_not_read_again_and_its_neighbours_are(case: Case) -> None:
    await case.append(5)
    case.outbox.give_up(3, "too large")
    assert positions(case.outbox) == [1, 2]
    assert positions(case.outbox, after=2)[:2] == [4, 5]


async def test_an_epoch_is_known_once_it_has_events_and_after_the_store_was_opened_again(tmp_path: Path) -> None:
    epochs, unused = [], []
    for _ in range(3):
        async with make_store(tmp_path) as store:
            unused.append(store.outbox.epoch())
        async with make_store(tmp_path) as store:
            await accept(store, Event("d", data={}))
            epochs.append(store.outbox.epoch())
            assert all(map(store.outbox.has_epoch, epochs))
            assert not any(map(store.outbox.has_epoch, unused))
    assert len({*epochs, *unused}) == 6
