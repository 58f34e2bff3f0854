"""A store to be damaged, and the assertions that hold after any damage."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.store.errors import DamagedStoreError
from agent.store.event_store import EventStore
from agent.store.port import StoredEvent
from contract.event import Event, Label
from tests.agent.store.stores import (
    HandClock,
    accept,
    batch,
    crash_image,
    declared,
    lost_labels,
    make_store,
    mark_processed,
    stored_events,
    take_turns,
)

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
PROCESSED_TO, FORWARDED_TO = 12, 20
EXTRA = 9_999
SEGMENT_EVENTS = 100
OPENINGS, OPENINGS_MAX = 3, 3


@dataclass(frozen=True, slots=True)
class Original:
    """The files of a killed store, and its contents."""

    folder: Path
    events: tuple[StoredEvent, ...]
    """All of them, in order."""
    commits: tuple[int, ...]
    """Positions at which the commits start."""


@dataclass(frozen=True, slots=True)
class Survivors:
    """The remaining contents of a damaged store, after as many openings as needed."""

    new: dict[int, StoredEvent]
    forwarded: set[int]
    lost: set[Label]
    found_to: set[Label]
    """Labels after which events may have been lost, according to the gaps."""
    gap_events: int


def event(number: int) -> Event:
    """Return an event of about 300 bytes."""
    return Event(DEVICE, id=number, data={"text": f"{number:04d}" * 60})


def make_original(root: Path) -> Original:
    """Create a store with several epochs, states and kinds of pages, the last opening only in its log."""

    async def make() -> Original:
        events, commits = list[StoredEvent](), list[int]()
        for opening in range(OPENINGS):
            async with make_store(root / "live", keep_processed_seconds=10**9, segment_events=SEGMENT_EVENTS) as store:
                for commit in range(6):
                    start = 1000 * opening + 100 * commit
                    await accept(store, *(event(start + place) for place in range(1 if commit % 3 else 40)))
                    added = store.outbox.read(events[-1].position if events else 0, 1000, 1 << 24)
                    commits.append(added[0].position)
                    events.extend(added)
                if opening == 0:
                    mark_processed(store, 1, PROCESSED_TO)
                    store.outbox.mark_forwarded(batch(PROCESSED_TO + 1, FORWARDED_TO))
                    store.outbox.set_fact("receipts.table", "t1")
                take_turns(store, 200)
                if opening == OPENINGS - 1:
                    crash_image(root / "live", root / "killed")
        return Original(root / "killed", tuple(events), tuple(commits))

    return asyncio.run(make())


def copy(original: Original, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(original.folder, to)
    return to


async def survivors(folder: Path) -> Survivors:
    """Open a damaged store as the service does, again if damage is detected later, and read all of it."""
    clock = HandClock(boot_name="boot-2")
    for opening in range(OPENINGS_MAX):
        async with make_store(folder, clock, keep_processed_seconds=10**9) as store:
            outcome = await accept(store, event(EXTRA + opening))
            assert outcome.accepted == 1 or store.failed.done(), outcome
            events = stored_events(store)
            await asyncio.sleep(0)  # allows a report of damage to arrive
            if not store.failed.done():
                return _survivors(store, events)
            assert isinstance(store.failed.exception(), DamagedStoreError)
    raise AssertionError(f"damaged after {OPENINGS_MAX} openings")


def check(original: Original, found: Survivors, *, may_lose_from: int | None = None) -> None:
    """Compare the result with the original: no loss is silent, and each label keeps its event."""
    labels = {event.label: event for event in original.events}
    for event in found.new.values():
        same = labels.get(event.label)
        assert same is None or same.fingerprint == event.fingerprint, f"a label changed hands: {event}"
    assert len({event.label for event in found.new.values()}) == len(found.new)
    epochs = {label.epoch for label in labels}
    # An epoch without any surviving data about it has a new name, from the first position on.
    relabelled = sum(label.epoch not in epochs for label in found.lost)
    declared_to = max((labels[label].position for label in found.found_to if label in labels), default=10**9)
    for event in original.events:
        if event.position <= PROCESSED_TO or (may_lose_from is not None and event.position >= may_lose_from):
            continue
        kept = found.new.get(event.position)
        if kept is not None and kept.fingerprint == event.fingerprint:
            assert kept.tail == event.tail
            continue
        declared = event.label in found.lost or event.position > declared_to or event.position <= relabelled
        assert event.position in found.forwarded or declared, f"lost silently: {event.position}"


def _survivors(store: EventStore, events: list[StoredEvent]) -> Survivors:
    lost, found_to = lost_labels(events)
    forwarded = {number for batch in store.outbox.forwarded() for number in range(batch.first, batch.last + 1)}
    return Survivors({event.position: event for event in events}, forwarded, lost, found_to, len(declared(events)))
