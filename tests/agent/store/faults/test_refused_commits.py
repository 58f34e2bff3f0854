"""The frames that a failed commit leaves in the log: no reader treats them as acked events."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from agent.store.event_store import EventStore
from agent.store.files import swap
from agent.store.files.sqlite_pages import LogFrames
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from agent.store.recovery.verify import verify
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.stores import HandClock, accept, crash_image, document, make_store, stored_events

SIZES = (200, 2_000, 8_000, 30_000, 80_000)


@dataclass(slots=True)
class Sensors:
    """The sent events, and their outcomes."""

    chance: Random
    sent: dict[int, Event] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    async def send(self, store: EventStore, clock: HandClock, count: int, size: int) -> bool:
        """Send a pack; return whether it was acked."""
        numbers = range(len(self.sent) + 1, len(self.sent) + count + 1)
        for number in numbers:
            self.sent[number] = Event("d", id=number, data={"text": self.chance.randbytes(size // 2).hex()})
        outcome = await accept(store, clock, *(self.sent[number] for number in numbers))
        (self.refused if outcome.refusal else self.acked).update(numbers)
        return not outcome.refusal


def readings(events: Sequence[StoredEvent]) -> dict[int, StoredEvent]:
    """Return the sensors' events by their id."""
    documents = [(document(event), event) for event in events]
    return {document["id"]: event for document, event in documents if document["device"] == "d"}


@pytest.mark.guarantee(1)
async def test_a_copy_of_what_a_kill_may_have_left_in_the_page_cache_is_acked_once_that_is_flushed(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors, disk = Sensors(Random(1)), FailingDisk()
    async with make_store(tmp_path / "live", clock, connect=disk.connect) as store:
        assert await sensors.send(store, clock, 1, 20)
        with disk.failing(Fault(Operation.FLUSH, Error.BROKEN)):
            assert not await sensors.send(store, clock, 1, 20)
            image = crash_image(tmp_path / "live", tmp_path / "killed")
    disk.below(monkeypatch)
    with disk.failing(Fault(Operation.FLUSH, Error.BROKEN)) as fault:
        async with make_store(image, clock, connect=disk.connect) as store:
            for event in sensors.sent.values():
                assert (await accept(store, clock, event)).refusal
            assert fault.hits >= len(sensors.sent)
            assert len(readings(stored_events(store))) == 2, "what is there is forwarded all the same"
            disk.fault = None
            for event in sensors.sent.values():
                assert (await accept(store, clock, event)).duplicates == 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("operation", [Operation.FLUSH, Operation.WRITE])
@pytest.mark.parametrize("salvaged", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_what_was_refused_never_takes_the_place_of_what_is_acked_after_it(
    tmp_path: Path, clock: HandClock, operation: Operation, seed: int, *, salvaged: bool
) -> None:
    chance = Random(seed)
    sensors, disk = Sensors(chance), FailingDisk()
    async with make_store(tmp_path / "live", clock, connect=disk.connect) as store:
        for _ in range(chance.randrange(1, 20)):
            assert await sensors.send(store, clock, chance.randrange(1, 4), chance.choice((20, 300, 3_000)))
        for size in sorted((chance.choice(SIZES) for _ in range(chance.randrange(1, 5))), reverse=True):
            after = chance.randrange(6) if operation is Operation.WRITE else 0
            with disk.failing(Fault(operation, Error.BROKEN, after=after)):
                assert not await sensors.send(store, clock, chance.randrange(1, 5), size)
        for _ in range(chance.randrange(1, 4)):
            assert await sensors.send(store, clock, chance.randrange(1, 3), chance.choice((20, 300)))
        before = stored_events(store)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    if salvaged:
        swap.suspect(image / FILE_NAME, "a bad sector elsewhere")
    async with make_store(image, clock) as store:
        assert any(swap.damaged_files(image / FILE_NAME)) == salvaged
        after_restart = stored_events(store)
        assert [event for event in after_restart if event.position <= before[-1].position] == before
        assert readings(after_restart).keys() == sensors.acked
        for number in sensors.refused:
            assert (await accept(store, clock, sensors.sent[number])).accepted == 1
        for number in sensors.acked:
            assert (await accept(store, clock, sensors.sent[number])).duplicates == 1
        labels = [event.label for event in stored_events(store)]
        assert len(set(labels)) == len(labels)
    assert not verify(image / FILE_NAME).findings


async def test_a_duplicate_is_acked_once_nothing_refused_lies_behind_the_last_commit(
    tmp_path: Path, clock: HandClock
) -> None:
    sensors, disk = Sensors(Random(1)), FailingDisk()
    async with make_store(tmp_path / "live", clock, connect=disk.connect) as store:
        assert await sensors.send(store, clock, 1, 20)
        with disk.failing(Fault(Operation.WRITE, Error.BROKEN, after=6)):
            assert not await sensors.send(store, clock, 1, 8_000)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    assert LogFrames(image / FILE_NAME).behind, "the failed commit has left nothing: the test shows nothing"
    async with make_store(image, clock) as store:
        assert (await accept(store, clock, sensors.sent[1])).duplicates == 1
        assert not LogFrames(image / FILE_NAME).behind


@pytest.mark.parametrize("fault", [Fault(Operation.WRITE, Error.FULL), Fault(Operation.FLUSH, Error.BROKEN)])
async def test_labels_of_a_refused_commit_are_not_assigned_again(
    tmp_path: Path, clock: HandClock, fault: Fault
) -> None:
    sensors, disk = Sensors(Random(1)), FailingDisk()
    async with make_store(tmp_path / "live", clock, connect=disk.connect) as store:
        assert await sensors.send(store, clock, 1, 20)
        with disk.failing(fault):
            assert not await sensors.send(store, clock, 20, 80_000)  # too large for memory: written before its COMMIT
        assert await sensors.send(store, clock, 1, 20)
        stored = readings(stored_events(store))
        assert stored[1].label.epoch != stored[22].label.epoch
