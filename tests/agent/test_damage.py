"""The agent as a real process on a damaged store: it continues, and declares what is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from resource import RLIMIT_FSIZE, prlimit

import pytest

from agent.clock import SystemClock
from agent.config.lanes import DEFAULT_LANE
from agent.store.files import sqlite_pages
from agent.store.files.folders import LANES_FOLDER
from agent.store.files.sqlite_pages import PageVersions
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.read import section
from contract.event import Event
from simulators.services.install import programs
from simulators.services.process import Process
from tests.agent.cli.running import here
from tests.agent.store.stores import accept, make_store, mark_processed, write_commits
from tests.support.agent_process import configured, stored_documents
from tests.support.disks.small_disk import fill, small_disk
from tests.support.posting_gateway import PostingGateway
from tests.support.waiting import wait_until

_SOURCE = Path(__file__).with_name("bad_sectors.c")


@dataclass(frozen=True, slots=True)
class BadSectors:
    """Unreadable bytes of one file, identified by its inode."""

    library: Path
    inode: int
    first: int
    last: int

    @classmethod
    def of(cls, file: Path, first: int, last: int, folder: Path) -> BadSectors:
        """Build the library that makes the bytes unreadable."""
        library = folder / "bad_sectors.so"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        return cls(library, file.stat().st_ino, first, last)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "BAD_INODE": str(self.inode),
            "BAD_FIRST": str(self.first),
            "BAD_LAST": str(self.last),
        }


COMMITS = 40
SECTION_EVENTS = 30


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configured(tmp_path, '[store]\nkeep_processed = "0s"\n')


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a store of many pages, all of it processed but the last commit.

    An opening reads the events of the last section only, so not those that `damage_a_page_of` damages.
    """
    monkeypatch.setattr(section, "SECTION_EVENTS", SECTION_EVENTS)
    async with make_store(tmp_path / "state", keep_processed_seconds=10**9) as store:
        for number in range(COMMITS):
            await accept(store, Event("d", id=number, data={"text": "x" * 700}))
        mark_processed(store, 1, COMMITS + 1)  # one event began a section
    return tmp_path / "state" / FILE_NAME


def damage_a_page_of(store: Path) -> None:
    """Overwrite the head of a page in the middle of the events."""
    page = _page_of(store, COMMITS // 2)
    with store.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(8))


def events(configuration: Path, lane: str = DEFAULT_LANE) -> list[dict[str, object]]:
    done = here("events", "--lane", lane, "--config", str(configuration))
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    with closing(PageVersions(path)) as pages:
        versions, fetch = next(pages.passes())
        for number, page in versions:
            for row in sqlite_pages.rows(number, page, fetch):
                if row[0] == position and len(row) == 3 and isinstance(row[2], bytes):
                    return number
    raise AssertionError(f"no commit at position {position}")


SECTOR_BYTES = 512


def bad_sectors(gateway: PostingGateway, part: str, folder: Path) -> BadSectors:
    """Choose the unreadable bytes of file or log."""
    name, _, place = part.partition(", ")
    file = gateway.store if name == "file" else gateway.store.with_name(f"{gateway.store.name}-wal")
    size = file.stat().st_size
    first = {"beginning": 0, "middle": size // 2, "end": size - SECTOR_BYTES}[place]
    return BadSectors.of(file, first, first + SECTOR_BYTES - 1, folder)


def gaps_declared(store: Path) -> int:
    return sum(document["type"] == "gateway.gap" for document in stored_documents(store))


@pytest.mark.guarantee(7)
@pytest.mark.heavy
@pytest.mark.parametrize("part", ["file, beginning", "log, beginning", "log, middle", "log, end"])
def test_an_agent_starts_on_a_store_of_which_some_cannot_be_read_and_says_what_it_has_lost(
    tmp_path: Path, part: str
) -> None:
    gateway = PostingGateway(tmp_path, tmp_path / "state")
    with gateway.process():
        for _ in range(2):
            gateway.start()
            for _ in range(10):
                assert gateway.post(20, 1_000) == 200
            gateway.agent.kill()
    bad = bad_sectors(gateway, part, tmp_path)
    with gateway.process(bad.environment):
        gateway.start()
        assert gateway.post(20, 1_000) == 200
        gateway.agent.wait_for_log("store=salvaged")
        lost = gateway.acked - gateway.stored().keys()
        assert len(lost) < len(gateway.acked) / 2
        assert gaps_declared(gateway.store) > 0
        if lost:
            assert gateway.post_again(*sorted(lost)) == 200
        assert gateway.stored().keys() == gateway.acked


MEGABYTES = 24


def receipt_all(state: Path) -> None:
    """Mark all stored events as processed, as receipts would."""

    async def serve() -> None:
        async with make_store(state, SystemClock()) as store:
            mark_processed(store, 1, store._memory.end)

    asyncio.run(serve())


EVENTS_BYTES = 20 << 20


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize("sizes", [[1], [1, 1, 1, 100]], ids=["single", "mixed"])
@pytest.mark.parametrize("limits_file", [False, True], ids=["disk", "ulimit"])
def test_a_disk_full_of_single_events_which_the_table_has_is_emptied_through_kills_and_restarts(
    tmp_path: Path, sizes: list[int], *, limits_file: bool
) -> None:
    write_commits(tmp_path / "made", sizes, EVENTS_BYTES)
    with (
        small_disk(tmp_path / "disk", 100 if limits_file else (EVENTS_BYTES >> 20) + 9) as disk,
        PostingGateway(tmp_path, disk / "state", store='keep_processed = "2s"').process() as gateway,
    ):

        def start() -> None:
            gateway.start()
            if limits_file:  # of which statvfs says nothing
                prlimit(gateway.agent.pid, RLIMIT_FSIZE, (EVENTS_BYTES + (9 << 20),) * 2)

        shutil.copytree(tmp_path / "made", disk / "state")
        start()
        wait_until(lambda: gateway.post() == 503, "it is full")
        wait_until(lambda: gateway.readiness() == 503, "it says so")
        assert gateway.agent.terminate() == 0
        receipt_all(disk / "state")
        processed = set(gateway.acked)
        for end in (gateway.agent.kill, gateway.agent.terminate):
            start()
            wait_until(lambda: gateway.post(1) == 200, "what the table has leaves its space")
            end()
        start()
        wait_until(lambda: gateway.stored().keys() == gateway.acked - processed, "all of it is deleted")


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize("ends", ["killed", "in order"])
def test_a_disk_that_others_have_filled_to_the_last_byte_does_not_keep_it_from_starting(
    tmp_path: Path, ends: str
) -> None:
    with (
        small_disk(tmp_path / "disk", MEGABYTES) as disk,
        PostingGateway(tmp_path, disk / "state").process() as gateway,
    ):
        gateway.start()
        for _ in range(20):
            assert gateway.post(50, 1_000) == 200
        filler = fill(disk)
        assert gateway.post(1) == 503
        gateway.agent.kill() if ends == "killed" else gateway.agent.terminate()
        gateway.start()
        assert gateway.post_again(*sorted(gateway.acked)[:5]) == 200
        assert gateway.post(1) == 503
        assert gateway.readiness() == 503
        filler.unlink()
        wait_until(lambda: gateway.post(1) == 200, "there is space again")
        wait_until(lambda: gateway.readiness() == 200, "it is ready again")
        assert gateway.stored().keys() == gateway.acked
