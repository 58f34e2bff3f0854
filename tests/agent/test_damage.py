"""The agent as a real process on a damaged store: it continues, and declares what is lost."""

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent.config.lanes import DEFAULT_LANE
from agent.store.files import sqlite_cells
from agent.store.files.folders import LANES_FOLDER
from agent.store.files.sqlite_pages import PageVersions
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.read import section
from contract.event import Event
from simulators.services.process import Process
from tests.agent.store.stores import HandClock, accept, batch, make_store
from tests.support.agent_process import configured

COMMITS = 40
SECTION_EVENTS = 30


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configured(tmp_path, '[store]\nkeep_processed = "0s"\n')


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a store of many pages, all of it processed but the last commit.

    An opening reads the events of the last section only, so not those that `damage_a_page_of` damages.
    """
    monkeypatch.setattr(section, "SECTION_EVENTS", SECTION_EVENTS)

    async def fill() -> None:
        clock = HandClock()
        async with make_store(tmp_path / "state", clock, keep_processed_seconds=10**9) as store:
            for number in range(COMMITS):
                await accept(store, clock, Event("d", id=number, data={"text": "x" * 700}))
            store.outbox.mark_forwarded(batch(1, COMMITS + 1))  # one event began a section
            store.outbox.mark_processed(store.outbox.forwarded())

    asyncio.run(fill())
    return tmp_path / "state" / FILE_NAME


def damage_a_page_of(store: Path) -> None:
    """Overwrite the head of a page in the middle of the events."""
    page = _page_of(store, COMMITS // 2)
    with store.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(8))


def events(configuration: Path, lane: str = DEFAULT_LANE) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "agent.cli.main", "events", "--lane", lane, "--config", str(configuration)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.guarantee(7)
def test_damage_that_the_purge_meets_makes_the_agent_salvage_and_go_on(
    agent: Process, configuration: Path, store: Path
) -> None:
    damage_a_page_of(store)
    agent.start()
    agent.wait_for_log("agent=restarting")
    agent.wait_for_log("store=salvaged")
    assert agent.terminate() == 0
    types = [event["type"] for event in events(configuration)]
    assert types == ["reading", "gateway.started", "gateway.gap"]


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("damaged", ["alarms", DEFAULT_LANE])
def test_the_damaged_store_of_one_lane_is_salvaged_and_the_other_lane_keeps_all(
    agent: Process, configuration: Path, store: Path, damaged: str
) -> None:
    configuration.write_text(
        configuration.read_text() + '[[forward.lanes]]\nname = "alarms"\ntype = "alarm"\npriority = 1\n'
    )
    alarms = store.parent / LANES_FOLDER / "alarms"
    alarms.parent.mkdir()
    shutil.copytree(store.parent, alarms, ignore=lambda *_: [LANES_FOLDER])
    files = {DEFAULT_LANE: store, "alarms": alarms / FILE_NAME}
    files[damaged].write_bytes(b"garbage!" * 4096)
    agent.start()
    agent.wait_for_log("agent=ready")
    assert agent.terminate() == 0
    types = {lane: [event["type"] for event in events(configuration, lane)] for lane in files}
    assert types.pop(damaged) == ["gateway.started", "gateway.gap"]
    [whole] = types.values()
    assert "reading" in whole
    assert "gateway.gap" not in whole


def _page_of(path: Path, position: int) -> int:
    """Find the page that contains a commit."""
    with closing(PageVersions(path)) as pages:
        versions, fetch = next(pages.passes())
        for number, page in versions:
            for row in sqlite_cells.rows(number, page, fetch):
                if row[0] == position and len(row) == 3 and isinstance(row[2], bytes):
                    return number
    raise AssertionError(f"no commit at position {position}")
