"""The frames that a failed commit leaves in the log: no reader treats them as acked events."""

from collections.abc import Sequence
from pathlib import Path
from random import randbytes

import pytest

from agent.store.event_store import EventStore
from agent.store.files.sqlite_pages import LogFrames
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.stores import HandClock, accept, crash_image, document, make_store, stored_events


class Sensors:
    """The sent events."""

    def __init__(self) -> None:
        self.sent: dict[int, Event] = {}

    async def send(self, store: EventStore, clock: HandClock, count: int, size: int) -> bool:
        """Send a pack; return whether it was acked."""
        numbers = range(len(self.sent) + 1, len(self.sent) + count + 1)
        for number in numbers:
            self.sent[number] = Event("d", id=number, data={"text": randbytes(size // 2).hex()})
        outcome = await accept(store, clock, *(self.sent[number] for number in numbers))
        return not outcome.refusal


def readings(events: Sequence[StoredEvent]) -> dict[int, StoredEvent]:
    """Return the sensors' events by their id."""
    documents = [(document(event), event) for event in events]
    return {document["id"]: event for document, event in documents if document["device"] == "d"}


@pytest.mark.guarantee(1)
async def test_a_copy_of_what_a_kill_may_have_left_in_the_page_cache_is_acked_once_that_is_flushed(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors, disk = Sensors(), FailingDisk()
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


async def test_a_duplicate_is_acked_once_nothing_refused_lies_behind_the_last_commit(
    tmp_path: Path, clock: HandClock
) -> None:
    sensors, disk = Sensors(), FailingDisk()
    async with make_store(tmp_path / "live", clock, connect=disk.connect) as store:
        assert await sensors.send(store, clock, 1, 20)
        with disk.failing(Fault(Operation.WRITE, Error.BROKEN, after=6)):
            assert not await sensors.send(store, clock, 1, 8_000)
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    assert LogFrames(image / FILE_NAME).behind, "the failed commit has left nothing: the test shows nothing"
    async with make_store(image, clock) as store:
        assert (await accept(store, clock, sensors.sent[1])).duplicates == 1
        assert not LogFrames(image / FILE_NAME).behind
