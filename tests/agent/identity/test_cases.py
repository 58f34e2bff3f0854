"""Which messages are one event: typical cases of sensors, from bytes to store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.config.identity_rules import IdentityRule
from contract.record import Shared
from tests.agent.identity.gateway import DEVICE, gateway
from tests.agent.store.stores import HandClock, crash_image

UNTIMED = ("device", "type", "id", "boot", "data")
WITHOUT_TIME = IdentityRule("urn:dev:mac:*", UNTIMED)
NEVER_REPEATS = IdentityRule("urn:dev:mac:*", UNTIMED, window_seconds=60)


def event(**fields: object) -> dict[str, object]:
    return {"device": DEVICE, "data": {"t": 21.5}, **fields}


async def test_a_resend_that_is_stamped_anew_is_kept_and_names_the_earlier(tmp_path: Path, clock: HandClock) -> None:
    async with gateway(tmp_path, clock) as taken:
        first = await taken.take(event(id=7, time=1))
        second = await taken.take(event(id=7, time=2))
        assert (first.accepted, second.accepted) == (1, 1)
        assert b'"possible_duplicate_of":"%s"' % first.fingerprints[0].hex().encode() in taken.events()[1].tail


@pytest.mark.parametrize(("first", "second"), [(-1, -2), (0, 2**61 - 1), (1, "1")])
async def test_an_event_with_another_id_does_not_name_it_though_python_hashes_both_alike(
    tmp_path: Path, clock: HandClock, first: object, second: object
) -> None:
    async with gateway(tmp_path, clock) as taken:
        for time, number in enumerate((first, second)):
            assert (await taken.take(event(id=number, time=time))).accepted == 1
        assert not any(b"possible_duplicate_of" in stored.tail for stored in taken.events())


@pytest.mark.guarantee(2)
async def test_with_a_rule_without_time_it_is_a_copy(tmp_path: Path, clock: HandClock) -> None:
    async with gateway(tmp_path, clock, WITHOUT_TIME) as taken:
        first = await taken.take(event(id=7, time=1))
        second = await taken.take(event(id=7, time=2))
        other = await taken.take(event(id=8, time=2))
        stranger = await taken.take({**event(id=7, time=2), "device": "urn:x:1"})
        assert (second.accepted, second.duplicates) == (0, 1)
        assert first.fingerprints == second.fingerprints
        assert (other.accepted, stranger.accepted) == (1, 1)
        kept = taken.events()[0]
    assert (kept.shared, kept.bound) == (Shared.NONE, None)
    assert b'"time":1' in kept.tail


@pytest.mark.guarantee(2)
async def test_a_counter_that_starts_again_with_another_boot_gives_new_events(tmp_path: Path, clock: HandClock) -> None:
    async with gateway(tmp_path, clock) as taken:
        for boot in (1, 2):
            for number in (0, 1):
                assert (await taken.take(event(id=number, boot=boot))).accepted == 1


async def test_a_counter_that_starts_again_without_boot_looks_old_where_data_is_equal_and_is_new_elsewhere(
    tmp_path: Path, clock: HandClock
) -> None:
    async with gateway(tmp_path, clock) as taken:
        assert (await taken.take(event(id=0))).accepted == 1
        assert (await taken.take(event(id=1))).accepted == 1
        assert (await taken.take(event(id=0))).duplicates == 1
        assert (await taken.take(event(id=0, data={"t": 22}))).accepted == 1


@pytest.mark.guarantee(2)
async def test_equal_readings_seconds_apart_and_in_one_pack_are_all_kept(tmp_path: Path, clock: HandClock) -> None:
    async with gateway(tmp_path, clock) as taken:
        assert (await taken.take(event())).accepted == 1
        clock.pass_seconds(3)
        assert (await taken.take(event())).accepted == 1
        assert (await taken.take([event(), event(), event()])).accepted == 3
        assert len({stored.fingerprint for stored in taken.events()}) == 5


@pytest.mark.guarantee(2)
async def test_a_device_that_never_repeats_a_value_is_believed_for_the_window_from_the_first_copy_on(
    tmp_path: Path, clock: HandClock
) -> None:
    async with gateway(tmp_path, clock, NEVER_REPEATS) as taken:
        first = await taken.take(event())
        for _ in range(2):
            clock.pass_seconds(30)
            copy = await taken.take(event())
            assert (copy.accepted, copy.duplicates, copy.fingerprints) == (0, 1, first.fingerprints)
        clock.pass_seconds(1)  # 61 s after the first and 1 s after the latest duplicate: the window is not extended
        anew = await taken.take(event())
        assert (anew.accepted, anew.duplicates) == (1, 0)
        assert anew.fingerprints != first.fingerprints
        assert (await taken.take(event())).fingerprints == anew.fingerprints
        assert (await taken.take(event(data={"t": 22}))).accepted == 1
        assert (await taken.take({**event(), "device": "urn:x:1"})).accepted == 1
        assert (await taken.take({**event(), "device": "urn:x:1"})).accepted == 1


@pytest.mark.guarantee(2)
async def test_the_window_outlives_a_kill_and_the_transports_own_span(tmp_path: Path, clock: HandClock) -> None:
    rule = IdentityRule("*", UNTIMED, window_seconds=600)
    async with gateway(tmp_path / "a", clock, rule) as taken:
        first = await taken.take([event(), event(data={"t": 22}), event()])
        assert (first.accepted, first.duplicates) == (2, 1)
        assert first.fingerprints[0] == first.fingerprints[2]
        crash_image(tmp_path / "a", tmp_path / "b")
    clock.pass_seconds(500)
    shutil.rmtree(tmp_path / "a")
    async with gateway(tmp_path / "b", clock, rule) as taken:
        copy = await taken.take(event(data={"t": 22}))
        assert (copy.accepted, copy.duplicates, copy.fingerprints) == (0, 1, first.fingerprints[1:2])
        clock.pass_seconds(101)
        assert (await taken.take(event(data={"t": 22}))).accepted == 1
