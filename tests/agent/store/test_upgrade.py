"""Upgrades: each earlier release's file opens, loses nothing, and becomes what a new one is, whatever interrupts it."""

import json
import logging
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from agent.status import read_status
from agent.store.errors import StoreError
from agent.store.files import swap
from agent.store.fingerprints.transient import Spans
from agent.store.layout import FILE_NAME
from agent.store.recovery.open import open_store
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Event, Label
from tests.agent.store.faults.power_cuts import images
from tests.agent.store.faults.recording import Recording
from tests.agent.store.stores import GATEWAY, HandClock, accept, make_store, stored_events

RELEASES = Path(__file__).parent / "releases"
"""A file of each earlier schema, written by that release's own code, and the labels of its new events."""
DEVICE = "urn:dev:mac:00158d0001a2b3c4"
SCHEMAS = sorted(int(file.stem.removeprefix("schema-")) for file in RELEASES.glob("*.db"))


def release(schema: int, to: Path) -> Path:
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(RELEASES / f"schema-{schema}.db", to / FILE_NAME)
    return to / FILE_NAME


def new_events(schema: int) -> dict[int, tuple[Label, bytes]]:
    kept = json.loads((RELEASES / f"schema-{schema}.json").read_text())["new"]
    return {int(at): (Label(epoch, sequence), bytes.fromhex(text)) for at, (epoch, sequence, text) in kept.items()}


def shape(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT name, sql FROM sqlite_schema"))


def test_there_is_a_file_of_every_earlier_schema(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / "new.db")) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    assert list(range(1, version)) == SCHEMAS


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_an_earlier_releases_file_goes_on_with_all_it_held(tmp_path: Path, schema: int) -> None:
    path = release(schema, tmp_path / "old")
    with pytest.raises(StoreError, match="earlier release"):
        read_status(tmp_path / "old", GATEWAY)
    clock = HandClock()
    async with make_store(tmp_path / "old", clock, keep_processed_seconds=10**9) as store:
        found = {item.position: (item.label, item.fingerprint) for item in stored_events(store)}
        assert found == new_events(schema)
        assert store.fact("receipts.table") == "t1"
        assert [(waiting.first, waiting.last) for waiting in store.forwarded()] == [(14, 20)]
        # Positions 40 and 41 were given up: those come again. The rest is known.
        copies = [(await accept(store, clock, Event(DEVICE, id=n, data={"t": 20 + n}))).duplicates for n in range(60)]
        assert [n for n, is_copy in enumerate(copies) if not is_copy] == [38, 39]
        clock.pass_seconds(20)
    after = read_status(tmp_path / "old", GATEWAY)
    assert (after.events.forwarded, after.events.processed, after.rejected) == (7, 13, 1)
    async with make_store(tmp_path / "new", clock) as store:
        await accept(store, clock, Event(DEVICE, id=1))
    assert shape(path) == shape(tmp_path / "new" / FILE_NAME)
    assert not verify(path).findings


async def test_a_newer_releases_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async with make_store(tmp_path, HandClock()) as store:
        await accept(store, HandClock(), Event(DEVICE, id=1))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0] + 1
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {0x4F67_0000 + version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer release"):
        async with make_store(tmp_path, HandClock()):
            pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("schema", SCHEMAS)
def test_no_power_cut_during_an_upgrade_loses_anything(tmp_path: Path, schema: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    path = release(schema, tmp_path / "live")
    original = path.read_bytes()
    recording = Recording(path)
    connection = cast("sqlite3.Connection", recording.connect())
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.prepare(connection, path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(recording.steps) > 10
    wanted = new_events(schema)
    for number, image in enumerate(images(recording.steps, 200, random.Random(seed), {"": original})):
        folder = tmp_path / str(number)
        folder.mkdir()
        for suffix, content in image.files.items():
            Path(f"{folder / FILE_NAME}{suffix}").write_bytes(content)
        opened, memory = open_store(folder / FILE_NAME, database.open_for_service, HandClock(), Spans())
        with closing(opened):
            assert not any(swap.set_aside(folder / FILE_NAME)), number
            for position, (_, fingerprint) in wanted.items():
                assert memory.fingerprints.position(fingerprint) == position, number
            assert not verify(folder / FILE_NAME).findings, number
        shutil.rmtree(folder)
    del connection


async def test_an_upgrade_without_room_to_rewrite_the_file_serves_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class NoRoom(sqlite3.Connection):
        def execute(self, sql: str, *parameters: object):  # type: ignore[no-untyped-def]
            if sql == "VACUUM":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *parameters)  # type: ignore[arg-type]

    release(1, tmp_path)
    clock = HandClock()
    with caplog.at_level(logging.WARNING):
        async with make_store(tmp_path, clock, connect=lambda path: database.open_for_service(path, NoRoom)) as store:
            assert (await accept(store, clock, Event(DEVICE, id=1000))).accepted == 1
    assert "store=rewriting failed" in caplog.text
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, clock, Event(DEVICE, id=1000))).duplicates == 1
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
