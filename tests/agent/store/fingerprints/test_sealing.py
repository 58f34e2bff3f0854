"""Sealing in a running store loses and duplicates nothing, at whatever step it ends."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.config.settings import IdentitySettings
from agent.store.event_store import EventStore
from agent.store.files import swap
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.index import DEFAULT_BOUNDS, FingerprintIndex, IndexBounds
from agent.store.fingerprints.sealing import Sealing
from agent.store.layout import FILE_NAME
from agent.store.memory import load
from agent.store.read.documents import commit_times, fingerprint_at
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.store.stores import (
    HandClock,
    accept,
    change,
    crash_image,
    make_store,
    position_of,
    rows,
    take_turns,
    watched,
)

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
SEGMENT = 32
STEPS = (
    "INSERT OR REPLACE INTO sealed",
    "INSERT OR REPLACE INTO segments",
    "DELETE FROM segments",
    "DELETE FROM sealed",
    "DELETE FROM fingerprints",
    "COMMIT",
)


def event(number: int) -> Event:
    return Event(DEVICE, id=number, data={"n": number})


async def settle(store: EventStore) -> None:
    """Wait until everything is sealed."""
    await accept(store, Event(DEVICE, id="last"))
    take_turns(store, 500)


def sealed(folder: Path) -> list[tuple[int, int]]:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return [(segment.first, segment.last) for segment, _ in segments.load_segments(connection)]


def forgotten(folder: Path) -> list[tuple[int, int]]:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return segments.load_forgotten(connection)


def log_bytes(folder: Path) -> int:
    ((size,),) = rows(folder, "SELECT sum(length(packed)) FROM fingerprints")
    return int(size)


@pytest.mark.parametrize("commit_events", [50, 400, 1_500])
def test_sealing_keeps_up_with_large_commits(commit_events: int, tmp_path: Path) -> None:
    segment_events, chance = 1 << 12, random.Random(7)
    index = FingerprintIndex(IndexBounds(segment_events=segment_events))
    with closing(database.open_for_service(tmp_path / FILE_NAME)) as connection:
        sealing = Sealing(index, lambda: connection, lambda: connection, lambda: 0)
        for first in range(1, 6 * segment_events, commit_events):
            index.add(first, 0, chance.randbytes(16 * commit_events))
            sealing.catch_up()
            assert index.count_behind_oldest() <= segment_events + commit_events


@pytest.mark.guarantee(2)
async def test_sealed_fingerprints_are_forgotten_after_the_retention_whatever_the_wall_clock_says(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, segment_events=SEGMENT, retention_seconds=7200) as store:
        for number in range(100):
            await accept(store, event(number))
            clock.pass_seconds(30)
            clock.now += (-14, 365, -365, 14)[number % 4] * 86_400_000
        await settle(store)
        first_to_go = 40
        clock.pass_seconds(7200 - 60 * 30)
        await settle(store)
        for number in range(99, -1, -1):
            outcome = await accept(store, event(number))
            if number > first_to_go + 1:
                assert outcome.duplicates == 1, number
            elif number < first_to_go - 22:  # the next check for expired ones is ten minutes later at the latest
                assert outcome.accepted == 1, number
        for _ in range(2):  # the segment being sealed is dropped at the next check
            clock.pass_seconds(9000)
            await settle(store)
        assert sealed(tmp_path) == []


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("salvaged", [False, True])
async def test_what_is_given_up_is_forgotten_in_a_segment_too_and_healed_by_a_resend(
    tmp_path: Path, *, salvaged: bool
) -> None:
    async with make_store(tmp_path, segment_events=SEGMENT) as store:
        for number in range(100):
            await accept(store, event(number))
        await settle(store)
        store._writer.call(lambda: store._committer.give_up(10, 12, "test"))
    if salvaged:  # and finds the gap alone
        change(tmp_path, "DELETE FROM forgotten")
        swap.suspect(tmp_path / FILE_NAME, "set by the test")
    async with make_store(tmp_path, segment_events=SEGMENT) as store:
        # Position 1 is the epoch's first event.
        assert [(await accept(store, event(number))).accepted for number in range(7, 12)] == [0, 1, 1, 1, 0]
        assert [(await accept(store, event(number))).accepted for number in range(7, 12)] == [0, 0, 0, 0, 0]


@pytest.mark.guarantee(2)
@pytest.mark.heavy
async def test_what_was_given_up_leaves_with_the_segments_before_it_on_a_gateway_that_never_rests(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, segment_events=SEGMENT, retention_seconds=7200) as store:
        number = 0

        async def serve(hours: float) -> None:
            nonlocal number
            for _ in range(int(hours * 120)):
                await accept(store, event(number))
                number += 1
                clock.pass_seconds(30)
                if not number % SEGMENT:
                    take_turns(
                        store, 500
                    )  # and no duplicate arrives, whose row would stay in the log and be removed from there

        await serve(2)
        store._writer.call(lambda: store._committer.give_up(10, 12, "early"))
        await serve(6)
        last = number
        store._writer.call(lambda: store._committer.give_up(last - 5, last - 5, "late"))
        assert forgotten(tmp_path) == [(last - 5, last - 5)]
        assert list(store._memory.fingerprints._forgotten) == [(last - 5, last - 5)]
    async with make_store(tmp_path, clock, segment_events=SEGMENT, retention_seconds=7200) as store:
        assert (await accept(store, *(event(number - place) for place in range(1, 17)))).accepted == 1


async def test_trace_finds_a_sealed_event_with_its_moment_and_its_copies(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, segment_events=SEGMENT) as store:
        committed = {}
        for number in range(100):
            committed[number] = clock.wall_ms()
            await accept(store, event(number))
            if number == 20:
                await accept(store, event(20))
            clock.pass_seconds(7)
        await settle(store)
        with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
            ((position, found),) = commit_times(connection, fingerprint(event(20))).items()
            assert fingerprint_at(connection, position) == fingerprint(event(20))
            assert [one.position for one in fingerprint_rows.latest_duplicates(connection, 9)] == [position] == [22]
    assert found is not None
    assert 0 <= committed[20] - found < 10_000


@pytest.mark.guarantee(2)
async def test_a_kill_at_any_step_of_a_sealing_loses_no_fingerprint(tmp_path: Path) -> None:
    clock, count = HandClock(), 70
    async with make_store(tmp_path / "live", clock, segment_events=SEGMENT) as store:
        await accept(store, *(event(number) for number in range(SEGMENT - 2)))

    images: list[Path] = []

    def copy_files(sql: str) -> None:
        if sql.startswith(STEPS):
            images.append(crash_image(tmp_path / "live", tmp_path / f"image-{len(images)}"))

    async with make_store(
        tmp_path / "live", clock, segment_events=SEGMENT, connect=watched(before=copy_files)
    ) as store:
        await accept(store, event(SEGMENT - 2))
        before = len(images)
        await accept(store, *(event(number) for number in range(SEGMENT - 1, count)))
        after = len(images)
        await settle(store)
        assert len(sealed(tmp_path / "live")) == count // SEGMENT
        assert log_bytes(tmp_path / "live") < 2 * SEGMENT * 16
    assert len(images) - before > 100
    for number, folder in enumerate(images[before:], before):
        known = SEGMENT - 1 if number < after else count
        connection = database.open_for_service(folder / FILE_NAME)
        with closing(connection):
            memory = load(connection, clock, IdentitySettings(), DEFAULT_BOUNDS)
            for place in range(known):
                assert position_of(memory, connection, fingerprint(event(place))) is not None, (
                    number,
                    place,
                )
        if number % 20 == 0:
            async with make_store(folder, clock, segment_events=SEGMENT) as store:
                assert (await accept(store, *(event(place) for place in range(known)))).duplicates == known
                await settle(store)
                assert (await accept(store, *(event(place) for place in range(known)))).duplicates == known
            assert not verify(folder / FILE_NAME).findings


@pytest.mark.guarantee(1, 2)
@pytest.mark.parametrize(
    "faults",
    [
        ["INSERT OR REPLACE INTO sealed"],
        ["INSERT OR REPLACE INTO segments"],
        ["INSERT OR REPLACE INTO segments", "DELETE FROM sealed"],
        ["DELETE FROM fingerprints"],
        ["COMMIT"],
    ],
)
async def test_a_sealing_whose_statement_fails_is_made_again(
    tmp_path: Path, clock: HandClock, faults: list[str]
) -> None:
    events, failing, begun = [event(number) for number in range(70)], [*faults], False

    def fail(sql: str) -> None:
        nonlocal begun
        begun = begun or sql.startswith(STEPS[0])
        if begun and failing and sql.startswith(failing[0]):
            failing.pop(0)
            raise sqlite3.OperationalError("disk I/O error")

    async with make_store(tmp_path, clock, segment_events=SEGMENT, connect=watched(before=fail)) as store:
        for start in range(0, len(events), 10):
            while (await accept(store, *events[start : start + 10])).refusal:
                clock.pass_seconds(11)  # the fault has struck a commit of events
        for _ in range(5):
            take_turns(store, 100)
            clock.pass_seconds(11)
        assert not failing
        assert len(sealed(tmp_path)) == len(events) // SEGMENT
        assert (await accept(store, *events)).duplicates == len(events)
        assert not store.failed.done()
    assert not verify(tmp_path / FILE_NAME).findings
