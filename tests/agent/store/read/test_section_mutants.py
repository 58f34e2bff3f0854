"""A digest that is computed wrongly in an obvious way does not fit the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.store.event_store import EventStore
from agent.store.port import ClosedSection
from agent.store.read import section
from agent.store.read.events import Epochs
from agent.store.read.section import Section
from agent.store.schema import tables
from agent.store.schema.database import Reads
from agent.store.write import committer as committing
from agent.store.write.committer import Committer
from agent.store.write.decision import Decision
from contract.event import Event
from tests.agent.store.sections import Witness
from tests.agent.store.stores import (
    FaultyConnection,
    HandClock,
    accept,
    batch,
    crash_image,
    make_store,
    open_faulty,
    stored_events,
)

append = Section.append
write = Committer._write
Mutant = Callable[[pytest.MonkeyPatch], None]


class Refusing(FaultyConnection):
    """Refuses commits while `fault` is set."""


def readings(first: int, count: int) -> list[Event]:
    return [Event("urn:dev:ops:a", id=number, data={"t": number / 10}) for number in range(first, first + count)]


async def history(folder: Path, clock: HandClock) -> None:
    """Store, purge, refuse and be killed; raise AssertionError unless each epoch's digest is stated and fits."""
    witness = Witness()
    async with make_store(folder / "0", clock, keep_processed_seconds=0, connect=open_faulty(Refusing)) as store:
        await accept(store, clock, *readings(1, 5))
        purge_all(store, clock, witness)
        await accept(store, clock, *readings(5, 4))  # the first one is a duplicate
        witness.see(stored_events(store))
        Refusing.fault = "INSERT INTO events"
        assert (await accept(store, clock, *readings(20, 3))).refusal
        Refusing.fault = ""
        await accept(store, clock, *readings(30, 6))
        purge_all(store, clock, witness)
        await accept(store, clock, *readings(40, 4))
        witness.see(stored_events(store))
        image = crash_image(folder / "0", folder / "1")
    for first in (50, 80):
        async with make_store(image, clock) as store:
            await accept(store, clock, *readings(first, 20))
            witness.see(stored_events(store))
    assert sorted((one.first, one.last) for one in witness.verified) == [(1, 9), (1, 11), (1, 21)]


def purge_all(store: EventStore, clock: HandClock, witness: Witness) -> None:
    """Purge all events, as after their receipt."""
    events = stored_events(store)
    witness.see(events)
    store.outbox.mark_forwarded(batch(events[0].position, events[-1].position))
    store.outbox.mark_processed(store.outbox.forwarded())
    clock.pass_seconds(11)
    for _ in range(3):
        store.trouble()
    assert store.counts().processed == 0


def before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Include events that may be refused."""

    def write_and_include(committer: Committer, decision: Decision) -> None:
        if (latest := committer._memory.section) is not None:
            append(latest, decision.packed)
        write(committer, decision)

    patch.setattr(Committer, "_write", write_and_include)


def without_a_note(patch: pytest.MonkeyPatch) -> None:
    """Purge events without writing the digest."""
    patch.setattr(section, "note", lambda *_: ("other", "value"))


def with_any_note(patch: pytest.MonkeyPatch) -> None:
    """Take a note about another epoch."""

    def read_note(connection: Reads, opened: tuple[int, str], end: int, now_ms: int) -> tuple[int, Section | None]:
        words = (tables.read_fact(connection, "section") or "").split()
        if len(words) != 4:
            return 0, None
        last, first = (opened[0] + int(word) - 1 for word in words[1:3])
        return (last, Section(first, bytes.fromhex(words[3]), now_ms)) if last <= end else (0, None)

    patch.setattr(section, "_read_note", read_note)


def without_the_statement(patch: pytest.MonkeyPatch) -> None:
    """Leave out the event that states the digest before."""

    def include(latest: Section, packed: Sequence[bytes]) -> None:
        append(latest, packed[1:] if latest.digest == bytes(32) else packed)

    patch.setattr(Section, "append", include)


def in_reverse(patch: pytest.MonkeyPatch) -> None:
    """Include the events of a commit in the reverse order."""
    patch.setattr(Section, "append", lambda latest, packed: append(latest, packed[::-1]))


def across_epochs(patch: pytest.MonkeyPatch) -> None:
    """Continue the digest of the epoch before."""
    latest: list[Section] = []

    def begin(first: int, digest: bytes, since_ms: int) -> Section:
        latest.append(Section(first, latest[-1].digest if latest else digest, since_ms))
        return latest[-1]

    patch.setattr(committing, "Section", begin)


def from_the_second(patch: pytest.MonkeyPatch) -> None:
    """State the label of the first event wrongly."""
    close = section.close

    def close_early(latest: Section | None, epochs: Epochs, end: int) -> ClosedSection | None:
        closed = close(latest, epochs, end)
        return None if closed is None else replace(closed, first=closed.first + 1)

    patch.setattr(section, "close", close_early)


async def test_without_a_mutant_each_section_is_verified(tmp_path: Path, clock: HandClock) -> None:
    await history(tmp_path, clock)


@pytest.mark.guarantee(8)
@pytest.mark.parametrize(
    "mutant",
    [
        *(before_the_commit, without_a_note, with_any_note, without_the_statement, in_reverse, across_epochs),
        from_the_second,
    ],
)
async def test_a_mutant_is_found(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, mutant: Mutant
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        await history(tmp_path, clock)
