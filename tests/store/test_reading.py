"""The readers' view: through sqlite-utils, beside the service, and never writing."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.store import database, tables
from agent.store.reading import read_only
from contract.event import Event
from tests.store.stores import HandClock, accept, make_store


async def test_a_reader_sees_one_moment_while_the_service_commits(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, Event("d", id=1))
        with read_only(tmp_path / database.FILE_NAME) as reader:
            before = [row["first_position"] for row in reader.query("SELECT first_position FROM events")]
            assert (await accept(store, clock, Event("d", id=2))).accepted == 1
            assert [row["first_position"] for row in reader.table("events").rows_where()] == before
            assert tables.last_position(reader) == before[-1] + 1
        with read_only(tmp_path / database.FILE_NAME) as reader:
            assert reader.table("events").count == len(before) + 1
            assert reader.table("epochs").count == 1  # readers open none


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, Event("d", id=1))
        before = (tmp_path / database.FILE_NAME).read_bytes()
        with read_only(tmp_path / database.FILE_NAME) as reader, pytest.raises(sqlite3.OperationalError, match="read"):
            reader.table("facts").insert({"name": "x", "value": "y", "checksum": 0})
        assert (tmp_path / database.FILE_NAME).read_bytes() == before
        assert (await accept(store, clock, Event("d", id=2))).accepted == 1


def test_the_service_does_not_pay_for_what_only_readers_need() -> None:
    code = "import sys, agent.command_line, agent.service; print('sqlite_utils' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
