"""SQLite's errors for unreadable bytes of the disk count as damage, whichever they are."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.store.layout import FILE_NAME
from contract.event import Event
from tests.agent.store.stores import HandClock, accept, crash_image, make_store
from tests.support.disks.bad_sectors import BadSectors

SECTOR_BYTES = 512
OPEN = """
import sqlite3, sys
from pathlib import Path
from agent.store.schema import database, tables
from agent.store.errors import is_damage
try:
    connection = database.open_for_service(Path(sys.argv[1]))
    tables.read_fact(connection, "a fact")
except sqlite3.Error as error:
    print(is_damage(error), error.sqlite_errorname)
"""


async def kill_one(folder: Path) -> Path:
    """Create the files of a killed store."""
    clock = HandClock()
    async with make_store(folder / "live", clock) as store:
        await accept(store, clock, Event("d", id=0))
        return crash_image(folder / "live", folder / "killed")


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("name", [FILE_NAME, f"{FILE_NAME}-wal"])
def test_a_connection_that_cannot_read_the_beginning_is_damage(tmp_path: Path, name: str) -> None:
    killed = asyncio.run(kill_one(tmp_path))
    bad = BadSectors.of(killed / name, 0, SECTOR_BYTES - 1, tmp_path)
    found = subprocess.run(
        [sys.executable, "-c", OPEN, killed / FILE_NAME],
        env={**os.environ, **bad.environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.startswith("True"), found.stdout
