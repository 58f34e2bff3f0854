"""The folders of lanes: what is in their place, what is left of them, and what no lane can have left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.lanes import DEFAULT_LANE
from agent.store.errors import StoreError
from agent.store.files import use_mark
from agent.store.files.folders import LANES_FOLDER, foreign_folders, store_folders
from agent.store.layout import FILE_NAME
from contract.event import Label
from tests.agent.store.stores import HandClock, accept, stored_events
from tests.agent.store.test_lanes import ALARM, ALARMS, OTHER, READING, opened, sizes


def make_file(place: Path) -> None:
    place.write_text("")


def make_dangling_link(place: Path) -> None:
    place.symlink_to(place.parent / "missing" / "alarms")


def make_link_to_itself(place: Path) -> None:
    place.symlink_to(place.name)


@pytest.mark.parametrize("make", [make_file, make_dangling_link, make_link_to_itself])
async def test_something_else_in_the_place_of_a_lanes_folder_is_named(
    tmp_path: Path, clock: HandClock, make: Callable[[Path], None]
) -> None:
    place = tmp_path / LANES_FOLDER / "alarms"
    place.parent.mkdir()
    make(place)
    with pytest.raises(StoreError, match=f"{place}: neither a folder nor a link to one"):
        await opened(tmp_path, clock, ALARMS).__aenter__()
    place.unlink()
    async with opened(tmp_path, clock, ALARMS) as stores:  # nothing was changed, and nothing is locked
        assert (await accept(stores.intake, clock, READING, ALARM)).accepted == 2


async def test_a_file_in_the_place_of_all_lanes_is_named(tmp_path: Path, clock: HandClock) -> None:
    (tmp_path / LANES_FOLDER).write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        await opened(tmp_path, clock, ALARMS).__aenter__()


async def test_a_lanes_folder_may_be_a_link_to_a_folder_of_its_own(tmp_path: Path, clock: HandClock) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    other.mkdir()
    (state / LANES_FOLDER).mkdir(parents=True)
    (state / LANES_FOLDER / "alarms").symlink_to(other)
    async with opened(state, clock, ALARMS) as stores:
        await accept(stores.intake, clock, READING, ALARM)
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
    assert (other / FILE_NAME).exists()


@pytest.mark.parametrize("target", ["..", "doors"])
async def test_two_lanes_never_have_one_store(tmp_path: Path, clock: HandClock, target: str) -> None:
    doors = replace(ALARMS, name="doors", type="door")
    async with opened(tmp_path, clock, doors):
        pass
    (tmp_path / LANES_FOLDER / "alarms").symlink_to(target)
    with pytest.raises(StoreError, match="is using this store"):
        await opened(tmp_path, clock, doors, ALARMS).__aenter__()


@pytest.mark.parametrize("name", [DEFAULT_LANE, "Alarms", "alarms.bak", "alarms gone", "-alarms"])
async def test_a_store_under_a_name_that_no_lane_can_have_is_not_used_and_named(
    tmp_path: Path, clock: HandClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with opened(tmp_path, clock, ALARMS) as stores:
        await accept(stores.intake, clock, READING, ALARM)
    foreign = tmp_path / LANES_FOLDER / name
    shutil.copytree(tmp_path / LANES_FOLDER / "alarms", foreign)
    async with opened(tmp_path, clock, ALARMS) as stores:
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
        await accept(stores.intake, clock, OTHER)
        assert sizes(stores) == {DEFAULT_LANE: 2, "alarms": 1}
    assert foreign_folders(tmp_path) == [foreign]
    assert f"lanes=foreign folder={foreign}" in caplog.text
    assert store_folders(tmp_path) == {DEFAULT_LANE: tmp_path, "alarms": tmp_path / LANES_FOLDER / "alarms"}


async def test_a_lane_that_is_left_and_whose_file_is_missing_declares_the_loss(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, ALARMS) as stores:
        await accept(stores.intake, clock, ALARM)
    file = tmp_path / LANES_FOLDER / "alarms" / FILE_NAME
    file.unlink()
    use_mark.mark_of(file).touch()
    async with opened(tmp_path, clock) as stores:
        await stores.turn()
        assert any(b"gateway.gap" in event.tail for event in stored_events(stores.by_lane["alarms"]))


async def test_lanes_that_are_left_have_their_share_of_the_bound(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, ALARMS) as stores:
        configured = stores.bytes_max
    async with opened(tmp_path, clock) as stores:
        assert stores.bytes_max == configured
        assert set(stores.by_lane) == {DEFAULT_LANE, "alarms"}


@pytest.mark.guarantee(4)
async def test_a_lane_from_an_older_copy_assigns_no_label_again_and_the_other_lane_recognises_resends(
    tmp_path: Path, clock: HandClock
) -> None:
    lane, copy = tmp_path / LANES_FOLDER / "alarms", tmp_path / "copy"
    given: dict[Label, bytes] = {}
    other = replace(ALARM, id=30)
    for events in ((READING, ALARM), (OTHER, other), (OTHER, other, replace(ALARM, id=31))):
        clock.pass_seconds(5)
        async with opened(tmp_path, clock, ALARMS) as stores:
            outcome = await accept(stores.intake, clock, *events)
            for store in stores.by_lane.values():
                for event in stored_events(store):
                    assert given.setdefault(event.label, event.fingerprint) == event.fingerprint
        if not copy.exists():
            shutil.copytree(lane, copy)
        else:
            shutil.rmtree(lane)
            shutil.copytree(copy, lane)
    assert (outcome.accepted, outcome.duplicates) == (2, 1)  # the copy does not have the alarm
