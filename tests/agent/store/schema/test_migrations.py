"""A file of an earlier schema is migrated with all its contents, after any interruption."""

import random
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from agent.config.settings import IdentitySettings
from agent.status import read_status
from agent.store.errors import StoreError
from agent.store.files import swap
from agent.store.layout import FILE_NAME
from agent.store.recovery.open import open_store
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Event, Label
from tests.agent.store.faults.power_cuts import images
from tests.agent.store.faults.recording import Recording
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    accept,
    make_store,
    position_of,
    stored_events,
)

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
NEXT_STEP = """
CREATE TABLE commits (first_position INTEGER PRIMARY KEY, count INTEGER NOT NULL);
INSERT INTO commits SELECT first_position, count FROM events;
"""


@pytest.fixture
async def fingerprints(tmp_path: Path) -> list[bytes]:
    """Create a store of this release; return the fingerprints of its events, in order."""
    async with make_store(tmp_path) as store:
        for number in range(20):
            await accept(store, Event(DEVICE, id=number))
        return [event.fingerprint for event in stored_events(store)]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.mark.guarantee(3)
def test_no_power_cut_during_a_migration_loses_anything(
    tmp_path: Path, fingerprints: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "migrations", partial(list, [*database.migrations(), NEXT_STEP]))
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    path = tmp_path / FILE_NAME
    original = path.read_bytes()
    recording = Recording(path)
    connection = cast("sqlite3.Connection", recording.connect())
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.prepare(connection, path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(recording.steps) > 5
    for number, image in enumerate(images(recording.steps, 100, random.Random(seed), {"": original})):
        folder = tmp_path / str(number)
        folder.mkdir()
        for suffix, content in image.files.items():
            Path(f"{folder / FILE_NAME}{suffix}").write_bytes(content)
        opened, memory = open_store(folder / FILE_NAME, database.open_for_service, HandClock(), IdentitySettings())
        with closing(opened):
            assert not any(swap.damaged_files(folder / FILE_NAME)), number
            for position, fingerprint in enumerate(fingerprints, 1):
                assert position_of(memory, opened, fingerprint) == position, number
            assert not verify(folder / FILE_NAME).findings, number
        shutil.rmtree(folder)
    del connection


@pytest.mark.guarantee(3)
async def test_the_release_before_goes_on_with_a_store_of_the_next_one(
    tmp_path: Path, fingerprints: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, labels = database.migrations(), list[Label]()
    for number, release in enumerate([[*steps, NEXT_STEP], steps, [*steps, NEXT_STEP]], 20):
        monkeypatch.setattr(database, "migrations", partial(list, release))
        if number == 20:
            with pytest.raises(StoreError, match="earlier release"):
                read_status(tmp_path, GATEWAY)
        async with make_store(tmp_path) as store:
            for known in range(number):
                assert (await accept(store, Event(DEVICE, id=known))).duplicates == 1
            assert (await accept(store, Event(DEVICE, id=number))).accepted == 1
            labels = [event.label for event in stored_events(store)]
        assert not verify(tmp_path / FILE_NAME).findings
        assert read_status(tmp_path, GATEWAY).accepted == number + 1
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(steps) + 1,)
    assert len(set(labels)) == len(labels) > len(fingerprints) + 2


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_newer_store_that_only_its_release_can_open_is_left_as_it_is(
    tmp_path: Path, fingerprints: list[bytes], monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    with monkeypatch.context() as newer:
        steps = [*database.migrations(), NEXT_STEP]
        newer.setattr(database, "migrations", partial(list, steps))
        newer.setattr(database, "BREAKING_STEP", 0 if is_damaged else len(steps))
        async with make_store(tmp_path / "newer") as store:
            await accept(store, Event(DEVICE, id=1))
            for name, content in contents(tmp_path / "newer").items():  # as a kill leaves them
                (tmp_path / name).write_bytes(content)
    path = tmp_path / FILE_NAME
    if is_damaged:
        path.write_bytes(path.read_bytes()[:8] + bytes(8) + path.read_bytes()[16:])
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=r"of a newer release.*install that one"):
        async with make_store(tmp_path):
            pass
    assert contents(tmp_path) == before
    if not is_damaged:
        with pytest.raises(StoreError, match="newer release"):
            read_status(tmp_path, GATEWAY)
