"""The fingerprints that a salvage restores if their own rows are lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.files import swap
from agent.store.layout import FILE_NAME
from agent.store.recovery.verify import verify
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, batch, make_store, take_turns

SEGMENT_EVENTS = 16
KEY = b"p" * 16


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM segments",),
        ("DELETE FROM sealed",),
        ("DELETE FROM segments", "DELETE FROM sealed"),
        ("UPDATE segments SET service_ms = service_ms + 1",),  # as by a flipped bit: its checksum is wrong
        ("UPDATE sealed SET service_ms = service_ms + 1",),
    ],
)
async def test_a_lost_segment_is_known_from_its_events_beside_the_keys_that_its_rows_still_hold(
    tmp_path: Path, statements: tuple[str, ...], clock: HandClock
) -> None:
    nameless = Event("d", data={"t": 21})
    counted = [Event("d", id=number) for number in range(100)]
    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        await accept(store, clock, nameless, key=KEY)
        for event in counted:
            await accept(store, clock, event)
        take_turns(store, 500)  # until everything is sealed
        store.outbox.mark_forwarded(batch(1, 5))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        emptied = "SELECT count(*) FROM fingerprints WHERE length(packed) = 0 AND length(retransmission_keys) > 0"
        assert connection.execute(emptied).fetchone()[0], "a row that is sealed, and keeps its key"
        for statement in statements:
            assert connection.execute(statement).rowcount
    swap.suspect(path, "set by the test")

    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        assert (await accept(store, clock, nameless, key=KEY)).duplicates == 1
        for event in counted:
            assert (await accept(store, clock, event)).duplicates == 1
    assert not [finding for finding in verify(path).findings if finding.check in ("segments", "fingerprints", "rows")]


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("lost", ["segments", "sealed"])
async def test_an_event_that_was_resent_after_a_gap_is_known_by_its_later_position_in_a_rebuilt_segment(
    tmp_path: Path, lost: str, clock: HandClock
) -> None:
    resent = Event("d", id="resent")
    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        await accept(store, clock, resent)
        # Position 1 is the epoch's first event.
        store._writer.call(lambda: store._committer.give_up(2, 2, "test"))
        assert (await accept(store, clock, resent)).accepted == 1
        for number in range(SEGMENT_EVENTS):
            await accept(store, clock, Event("d", id=number))
        take_turns(store, 500)  # until everything is sealed
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(f"DELETE FROM {lost}").rowcount
    swap.suspect(path, "set by the test")

    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        assert (await accept(store, clock, resent)).duplicates == 1
