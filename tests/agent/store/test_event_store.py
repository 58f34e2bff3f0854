"""The store's guarantees, on a real file."""

import asyncio
import logging
from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.layout import FILE_NAME
from agent.store.port import Outcome, Reject, Submission
from contract.event import Event, Label
from contract.fingerprint import fingerprint
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    accept,
    candidate,
    crash_image,
    make_store,
    stored_events,
    submit,
)

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
KEY = b"p" * 16
ONE = Event(DEVICE, id=1, data={"t": 21})
TWO = Event(DEVICE, id=2, data={"t": 21})
NAMELESS = Event(DEVICE, data={"t": 21})


async def test_an_accepted_event_is_read_back_with_label_and_fingerprint(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        outcome = await accept(store, clock, ONE)
        started, event = stored_events(store)
    assert (outcome.accepted, outcome.duplicates, outcome.fingerprints) == (1, 0, (fingerprint(ONE),))
    assert (started.label.sequence, event.label) == (1, Label(started.label.epoch, 2))
    assert event.fingerprint == fingerprint(ONE)
    assert b'"type":"gateway.started","id":"%s"' % started.label.epoch.encode() in started.tail


async def test_an_opening_that_stores_nothing_writes_nothing(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, ONE)
    before = (tmp_path / FILE_NAME).read_bytes()
    async with make_store(tmp_path, clock):
        pass
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.guarantee(2)
async def test_copies_in_progress_share_one_commit(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        outcomes = await asyncio.gather(*(submit(store, clock, ONE) for _ in range(50)))
        assert sum(outcome.accepted for outcome in outcomes) == 1
        assert sum(outcome.duplicates for outcome in outcomes) == 49
        assert len(stored_events(store)) == 2


async def test_one_sender_that_cannot_be_told_keeps_no_other_waiting(tmp_path: Path, clock: HandClock) -> None:
    def fail(_: Outcome) -> None:
        raise RuntimeError("the connection is gone")

    async with make_store(tmp_path, clock) as store:
        store.submit(Submission((candidate(clock, ONE),), (), None, fail))
        outcome = await accept(store, clock, TWO)
        assert outcome.accepted == 1
        assert len(stored_events(store)) == 3


@pytest.mark.guarantee(2)
async def test_equal_events_without_id_and_time_are_all_kept(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        outcome = await accept(store, clock, NAMELESS, NAMELESS)
        events = stored_events(store)[1:]
    assert outcome.accepted == 2
    assert [event.fingerprint for event in events] == [fingerprint(NAMELESS, label=event.label) for event in events]
    assert b'"possible_duplicate_of":"%s"' % events[0].fingerprint.hex().encode() in events[1].tail
    assert b"possible_duplicate_of" not in events[0].tail


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("seconds", "is_duplicate"), [(200, True), (300, False)])
async def test_a_proven_retransmission_is_a_duplicate_within_the_exchange_lifetime_across_a_kill(
    tmp_path: Path, clock: HandClock, seconds: int, is_duplicate: bool
) -> None:
    async with make_store(tmp_path / "first", clock) as store:
        await accept(store, clock, NAMELESS, key=KEY)
        assert (await accept(store, clock, NAMELESS, key=KEY)).duplicates == 1
        image = crash_image(tmp_path / "first", tmp_path / "second")
    clock.pass_seconds(seconds)
    async with make_store(image, clock) as store:
        assert (await accept(store, clock, NAMELESS, key=KEY)).duplicates == int(is_duplicate)


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("trusted", "is_duplicate"), [(True, True), (False, False)])
async def test_after_a_reboot_only_a_trusted_clock_proves_a_retransmission(
    tmp_path: Path, clock: HandClock, trusted: bool, is_duplicate: bool
) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, NAMELESS, key=KEY)
    clock.now += 30_000
    clock.running, clock.boot_name = 5_000, "boot-2"
    if not trusted:
        clock.trusted = type(clock.trusted).UNTRUSTED
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, clock, NAMELESS, key=KEY)).duplicates == int(is_duplicate)


async def test_each_opening_has_an_epoch_of_its_own_and_names_the_end_of_the_previous(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, ONE)
        first = stored_events(store)[0].label.epoch
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, TWO)
        events = stored_events(store)
    assert [event.label.sequence for event in events] == [1, 2, 1, 2]
    assert events[2].label.epoch != first
    assert b'"data":{"previous_epoch":"%s","previous_sequence":2,' % first.encode() in events[2].tail


async def test_a_pack_that_comes_again_brings_its_invalid_events_once(tmp_path: Path, clock: HandClock) -> None:
    first, other = (Reject(DEVICE, "coap", clock.wall_ms(), "NaN", raw) for raw in (b"raw", b"other"))
    async with make_store(tmp_path, clock) as store:
        for _ in range(3):
            await submit(store, clock, ONE, rejects=(first,))
        assert read_status(tmp_path, GATEWAY).rejected == 1
        await submit(store, clock, ONE, rejects=(first, other))
        for _ in range(2):
            await submit(store, clock, rejects=(first,))
    assert read_status(tmp_path, GATEWAY).rejected == 4


async def test_the_writer_logs_nothing_per_event(
    tmp_path: Path, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, ONE)
    assert not caplog.records
