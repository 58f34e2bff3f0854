"""The digests of sections: stated for all events that are stored, and left out where one of them is not known."""

import secrets
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.config.lanes import DEFAULT_LANE
from agent.config.origins import settings_hash
from agent.config.settings import GatewaySettings, KafkaSettings, Settings
from agent.release import version
from agent.status import read_status
from agent.store.event_store import EventStore
from agent.store.files import swap
from agent.store.format.packing import checksum
from agent.store.lanes import lane_stores
from agent.store.layout import FILE_NAME
from agent.store.port import StoredEvent
from agent.store.read.section import SECTION_EVENTS, SECTION_MS
from contract.event import Event
from tests.agent.store.sections import Witness, statements
from tests.agent.store.stores import (
    GATEWAY,
    Faulty,
    HandClock,
    accept,
    change,
    crash_image,
    document,
    make_store,
    process_all,
    rows,
    stored_events,
    take_turns,
)


def readings(first: int, count: int) -> list[Event]:
    return [Event("urn:dev:ops:a", id=number, data={"t": number / 10}) for number in range(first, first + count)]


def purge_all(store: EventStore, clock: HandClock) -> None:
    """Purge all events, as after their receipt."""
    process_all(store)
    clock.pass_seconds(11)
    take_turns(store, 3)
    assert store.counts().processed == 0


def check(events: list[StoredEvent], *sections: tuple[int, int]) -> None:
    """Compare the sections stated with those expected, and their digests with the events."""
    witness = Witness()
    witness.see(events)
    assert [(one.first, one.last) for one in statements(events)] == list(sections)
    assert len(witness.verified) == len(sections)


@pytest.mark.guarantee(8)
async def test_each_opening_states_the_digest_of_the_epoch_before_whatever_was_purged_refused_or_killed(
    tmp_path: Path, clock: HandClock, faulty: Faulty
) -> None:
    witness = Witness()
    async with make_store(tmp_path / "0", clock, keep_processed_seconds=0, connect=faulty.connect) as store:
        for start, known in ((1, 5), (5, 4), (30, 6), (40, 4)):
            if start == 30:
                faulty.fault = "INSERT INTO events"
                assert (await accept(store, *readings(20, 3))).refusal
                faulty.fault = ""
            await accept(store, *readings(start, known))  # the first of the second is a duplicate
            witness.see(stored_events(store))
            if start in (1, 30, 40):  # and the kill finds no event
                purge_all(store, clock)
        image = crash_image(tmp_path / "0", tmp_path / "1")
    for first in (50, 80):
        async with make_store(image, clock) as store:
            await accept(store, *readings(first, 20))
            witness.see(stored_events(store))
    assert sorted((one.first, one.last) for one in witness.verified) == [(1, 9), (1, 11), (1, 21)]


async def test_what_begins_a_section_states_version_backlog_and_wear(tmp_path: Path, clock: HandClock) -> None:
    settings = Settings(GatewaySettings("gw1", tmp_path, "trusted"), KafkaSettings("k:9092"))
    async with lane_stores(settings, clock) as stores:
        store = stores.by_lane[DEFAULT_LANE]
        await accept(store, *readings(1, 3))
        clock.pass_seconds(SECTION_MS // 1_000)
        store.trouble()
        await accept(store, *readings(10, 1))
        events = stored_events(store)
        written = store.written_bytes()
    stated = [data for event in events if "version" in (data := document(event)["data"])]
    assert [(one["version"], one["new_events"]) for one in stated] == [(version(), 0), (version(), 4)]
    assert [one["settings_hash"] for one in stated] == [settings_hash(settings)] * 2
    assert [one["retention_seconds"] for one in stated] == [settings.identity.retention_seconds] * 2
    assert 0 <= stated[0]["written_bytes"] <= stated[1]["written_bytes"] <= written


@pytest.mark.guarantee(8)
async def test_a_section_ends_once_it_has_enough_events(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, *readings(1, SECTION_EVENTS - 2))
        await accept(store, *readings(1, 1))  # a duplicate, which is in no section
        store.trouble()  # a turn of the writer
        assert not statements(stored_events(store))
        for start in (5_000, 6_000):
            await accept(store, *readings(start, SECTION_EVENTS // 2))
            store.trouble()
        await accept(store, *readings(20_000, 1))
        events = stored_events(store)
    check(events, (1, SECTION_EVENTS - 1 + SECTION_EVENTS // 2))


@pytest.mark.guarantee(8)
async def test_a_section_ends_after_a_time_though_no_event_follows(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, *readings(1, 3))
        clock.pass_seconds(SECTION_MS / 1000 - 1)
        store.trouble()
        assert not statements(stored_events(store))
        for _ in range(3):
            clock.pass_seconds(SECTION_MS / 1000)
            take_turns(store, 3)
        events = stored_events(store)
        assert read_status(tmp_path, GATEWAY).accepted == 3, "the statement is no event of a sensor"
    check(events, (1, 4))  # a section of its statement alone is not closed
    assert len(events) == 5


async def test_the_name_of_an_epoch_may_read_as_an_integer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = count(4_939_584_584_299_343)
    monkeypatch.setattr(secrets, "token_hex", lambda _: str(next(names)))
    async with make_store(tmp_path) as store:
        await accept(store, *readings(1, 3))
    async with make_store(tmp_path) as store:
        await accept(store, *readings(10, 1))
        events = stored_events(store)
    check(events, (1, 4))


@pytest.mark.guarantee(8)
@pytest.mark.parametrize("lost", ["note", "event"])
async def test_a_digest_that_is_not_known_is_not_stated(tmp_path: Path, clock: HandClock, lost: str) -> None:
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        await accept(store, *readings(1, 5))
        if lost == "note":
            purge_all(store, clock)
        await accept(store, *readings(10, 5))
    change(
        tmp_path,
        "DELETE FROM facts WHERE name = 'section'"
        if lost == "note"
        else "UPDATE events SET packed = zeroblob(length(packed)) WHERE first_position = 1",
    )
    async with make_store(tmp_path, clock) as store:
        await accept(store, *readings(20, 1))
        clock.pass_seconds(SECTION_MS / 1000)
        await accept(store, *readings(21, 1))
        events = stored_events(store)
    epoch = events[-1].label.epoch
    assert [(one.epoch, one.first) for one in statements(events)] == [(epoch, 1)]  # the next section is known


@pytest.mark.guarantee(8)
async def test_an_older_note_leads_to_the_same_digest_or_to_none_and_one_of_a_newer_release_to_the_same(
    tmp_path: Path, clock: HandClock
) -> None:
    """A salvage may find the note that an earlier purge has written."""
    witness = Witness()
    notes = list[tuple[Any, ...]]()
    async with make_store(tmp_path / "0", clock, keep_processed_seconds=0) as store:
        for start in (1, 10, 20):
            await accept(store, *readings(start, 5))
            witness.see(stored_events(store))
            if start != 20:
                purge_all(store, clock)
                notes += rows(tmp_path / "0", "SELECT name, value, checksum FROM facts WHERE name = 'section'")
    newer = f"{notes[1][1]} newer"
    notes.append(("section", newer, checksum("facts", ("section", newer))))
    for number, (note, known) in enumerate([(notes[0], False), (notes[1], True), (notes[2], True)], 1):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "0", folder)
        change(folder, "UPDATE facts SET value = ?, checksum = ? WHERE name = ?", values=(note[1], note[2], note[0]))
        async with make_store(folder, clock) as store:
            await accept(store, *readings(40, 1))
            events = stored_events(store)
        witness.see(events)
        assert bool(statements(events)) == known
    assert len(witness.verified) == 1


@pytest.mark.guarantee(8)
async def test_a_salvage_keeps_the_digest_where_it_has_lost_nothing(tmp_path: Path, clock: HandClock) -> None:
    witness = Witness()
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        for start in (1, 10):
            await accept(store, *readings(start, 5))
            witness.see(stored_events(store))
            if start == 1:
                purge_all(store, clock)
    swap.suspect(tmp_path / FILE_NAME, "set by the test")
    async with make_store(tmp_path, clock) as store:
        await accept(store, *readings(40, 1))
        witness.see(stored_events(store))
    assert [(one.first, one.last) for one in witness.verified] == [(1, 11)]
