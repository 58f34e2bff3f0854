"""Clock, SQLite, mounts, space, wear, ports, threads and `--measure`, here and with recorded data of others."""

import asyncio
import json
import os
import re
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent.cli.doctor import measure as measuring
from agent.cli.doctor.examination import examine
from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.machine import (
    AGENT_BYTES,
    STORE_BYTES_MIN,
    card_health,
    check_clock,
    check_fingerprints,
    check_memory,
    check_mount,
    check_ports,
    check_python,
    check_space,
    check_sqlite,
    check_store_bound,
    check_threads,
    check_wear,
    mount_of,
    tasks_max,
)
from agent.cli.doctor.measure import Measurement, Stored, measure
from agent.cli.failures import CommandError
from agent.clock import SystemClock
from agent.config.settings import (
    CoapSettings,
    GatewaySettings,
    HttpSettings,
    IdentitySettings,
    KafkaSettings,
    Settings,
    StoreSettings,
)
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.schema import database
from agent.store.wear import process_bytes
from contract.event import Event
from contract.record import ClockTrust
from tests.agent.cli.running import here
from tests.agent.store.stores import HandClock, accept, make_store
from tests.support.agent_process import configured

MOUNTS = """\
22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw
23 22 0:21 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1k
24 22 179:3 / /data rw - ext4 /dev/mmcblk0p3 rw,data=writeback
25 22 0:33 / /net rw - nfs4 nas:/x rw
26 22 179:4 / /with\\040space rw - vfat /dev/sda1 rw
27 22 179:5 / /old ro - ext4 /dev/sda2 ro
28 22 179:6 / /fast rw - xfs /dev/sda3 rw,nobarrier
29 23 179:7 / /tmp rw - ext4 /dev/sda4 rw
30 22 0:22 / /run rw,nosuid - tmpfs tmpfs rw,size=1k
"""


@pytest.mark.parametrize(
    ("folder", "condition", "text"),
    [
        ("/var/lib/oncegate", Condition.FINE, "on / (ext4, /dev/mmcblk0p2)"),
        ("/data/x", Condition.WRONG, "data=writeback"),
        ("/net/x", Condition.WRONG, "needs a local disk"),
        ("/with space/x", Condition.WARNING, "no journal"),
        ("/old", Condition.WRONG, "nothing can be written"),
        ("/fast", Condition.WRONG, "a flush does not reach the disk"),
        ("/tmp/x", Condition.FINE, "/dev/sda4"),  # the later mount hides the earlier
        ("/run/x", Condition.WRONG, ""),  # memory is no disk
    ],
)
def test_a_mount_that_breaks_the_promise_is_named(
    folder: str, condition: Condition, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.cli.doctor.machine.existing", lambda path: path)
    (finding,) = check_mount(Path(folder), MOUNTS)
    assert (finding.condition, text in finding.text) == (condition, True), finding


def test_the_mount_of_this_machine_is_found(tmp_path: Path) -> None:
    mount = mount_of(tmp_path, Path("/proc/self/mountinfo").read_text())
    assert mount is not None
    device = tmp_path.stat().st_dev
    assert mount.device == f"{device >> 8 & 0xFFF}:{device & 0xFF}"


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("kolkata")
def test_the_clock_is_told_with_the_hour_by_which_kafka_hours_counts() -> None:
    (finding,) = check_clock(HandClock(), GATEWAY)
    there = datetime.fromtimestamp(HandClock().wall_ms() / 1000, timezone(timedelta(hours=5.5)))
    assert f"({there:%H:%M} IST here)" in finding.text


GATEWAY, MEMORY, TINY = GatewaySettings("gw1"), IdentitySettings(memory_bytes=256 << 20), StoreSettings(max_bytes=1)
SMALL, ENOUGH = StoreSettings(max_bytes=1 << 20), StoreSettings(max_bytes=STORE_BYTES_MIN)
LEAST = AGENT_BYTES + (256 << 20)


@pytest.mark.parametrize(
    ("found", "condition", "words"),
    [
        (lambda: check_clock(SystemClock(), GatewaySettings("gw1", clock="trusted")), Condition.FINE, "gateway.clock"),
        (lambda: check_clock(HandClock(), GATEWAY), Condition.FINE, "synchronised"),
        (lambda: check_clock(HandClock(trusted=ClockTrust.UNTRUSTED), GATEWAY), Condition.WARNING, "timedatectl"),
        (lambda: check_python((3, 10, 19)), Condition.WARNING, "3.10.19; the agent is tested with 3.11 to 3.13"),
        (lambda: check_python((3, 11, 2)), Condition.FINE, "3.11.2"),
        (lambda: check_python((3, 14, 0)), Condition.WARNING, "use Python 3.13"),
        (lambda: check_sqlite((3, 40, 1)), Condition.FINE, "no other program may write"),
        (lambda: check_space(Path("/none/yet"), SMALL), Condition.FINE, "may grow to 1.0 MB"),
        (lambda: check_space(Path("/"), StoreSettings(max_bytes=1 << 60)), Condition.WRONG, "lower store.max_bytes"),
        (lambda: check_store_bound(TINY), Condition.WARNING, "the store may grow to 1 B"),
        (lambda: check_store_bound(ENOUGH, 1), Condition.WARNING, "the store of each lane"),
        (lambda: check_memory(MEMORY, available_bytes=LEAST), Condition.FINE, "fingerprints may take 268.4 MB"),
        (lambda: check_memory(MEMORY, 1, available_bytes=LEAST), Condition.WRONG, "lower identity.memory"),
    ],
)
def test_each_check_finds_what_is_wrong_and_how_to_correct_it(
    found: Callable[[], Iterator[Finding]], condition: Condition, words: str
) -> None:
    (finding,) = found()
    assert (finding.condition, words in f"{finding.text}; {finding.hint}") == (condition, True), finding


def test_a_store_that_is_large_enough_has_no_finding() -> None:
    assert not [*check_store_bound(StoreSettings()), *check_store_bound(ENOUGH)]


async def test_it_says_for_how_long_fingerprints_are_remembered_at_the_last_days_rate(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock) as store:
        for day in range(3):
            await accept(store, *(Event("d", id=f"{day} {number}") for number in range(day * 864)))
            clock.pass_seconds(86_400)
        await accept(store, Event("d", id="last"))
    (long_enough,) = check_fingerprints(tmp_path, ENOUGH, IdentitySettings())
    (too_short,) = check_fingerprints(tmp_path, ENOUGH, IdentitySettings(retention_seconds=30 * 86_400))
    assert "0.02 events/s remembered for 15 d" in long_enough.text
    assert (long_enough.condition, too_short.condition) == (Condition.FINE, Condition.WARNING)
    assert not list(check_fingerprints(tmp_path / "none", ENOUGH, IdentitySettings()))


async def test_what_is_written_is_counted_across_openings(tmp_path: Path) -> None:
    before, clock = process_bytes(), HandClock()
    for _ in range(2):
        async with make_store(tmp_path / "state", clock) as store:
            seen = store.written_bytes()
            await accept(store, Event("urn:a", id=clock.wall_ms(), data={"x": "x" * 100_000}))
            clock.pass_seconds(7_200)
    assert 100_000 < seen <= process_bytes() - before
    (finding, *_) = check_wear(tmp_path / "state")
    assert "of running" in finding.text
    assert " 0 B " not in finding.text


@pytest.mark.parametrize(
    ("life", "reserve", "condition", "percent"),
    [("0x01 0x02", "0x01", Condition.FINE, "20 %"), ("0x09 0x01", "0x01", Condition.WARNING, "90 %")],
)
def test_a_card_that_tells_its_age_is_heard(
    tmp_path: Path, life: str, reserve: str, condition: Condition, percent: str
) -> None:
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "life_time").write_text(life + "\n")
    (tmp_path / "device" / "pre_eol_info").write_text(reserve + "\n")
    (finding,) = card_health(tmp_path)
    assert (finding.condition, percent in finding.text) == (condition, True)


def settings(folder: Path, coap: str, http: str) -> Settings:
    return Settings(
        GatewaySettings("gw1", folder),
        KafkaSettings("127.0.0.1:1"),
        coap=CoapSettings(bind=coap),
        http=HttpSettings(bind=http),
    )


def test_a_port_that_another_has_names_its_process(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp, socket.create_server(("127.0.0.1", 0)) as tcp:
        udp.bind(("::1", 0))
        coap, http = check_ports(
            settings(tmp_path, f"[::]:{udp.getsockname()[1]}", f"127.0.0.1:{tcp.getsockname()[1]}")
        )
    assert (coap.condition, http.condition) == (Condition.WRONG, Condition.WRONG)
    assert all(f"({'process'} " in finding.text for finding in (coap, http))
    free = [finding.condition for finding in check_ports(settings(tmp_path, "[::1]:0", "127.0.0.1:0"))]
    assert free == [Condition.FINE, Condition.FINE]


@pytest.mark.parametrize(("user", "condition"), [(os.getuid(), Condition.FINE), (12345, Condition.WARNING)])
def test_a_port_that_systemd_has_is_the_agents_if_the_agents_user_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, condition: Condition
) -> None:
    for folder in ("net", "1/fd"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "1" / "comm").write_text("systemd\n")
    (tmp_path / "1" / "fd" / "3").symlink_to("socket:[77]")
    monkeypatch.setattr("agent.cli.doctor.machine.PROC", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        (tmp_path / "net" / "tcp6").write_text("head\n")
        (tmp_path / "net" / "tcp").write_text(f"head\n0: 0100007F:{port:04X} 0:0 0A 0:0 0:0 0 {user} 0 77 1\n")
        _, http = check_ports(settings(tmp_path, "[::1]:0", f"127.0.0.1:{port}"))
    assert (http.condition, "systemd" in http.text) == (condition, True)


def test_an_address_that_this_machine_lacks_is_wrong(tmp_path: Path) -> None:
    coap, _ = check_ports(settings(tmp_path, "192.0.2.1:5683", "127.0.0.1:0"))
    assert (coap.condition, "set coap.bind to an address" in coap.hint) == (Condition.WRONG, True)


async def test_the_ports_of_an_agent_that_runs_are_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        async with make_store(tmp_path):
            coap, http = check_ports(settings(tmp_path, "[::1]:0", f"127.0.0.1:{tcp.getsockname()[1]}"))
    assert (coap.condition, http.condition) == (Condition.FINE, Condition.FINE)
    assert "the agent runs" in http.text


def of_store(folder: Path) -> Finding:
    settings = Settings(GatewaySettings("gw1", folder), KafkaSettings("127.0.0.1:1"))
    return next(finding for finding in examine(settings) if finding.check == "store")


def test_a_state_folder_that_is_a_file_is_wrong(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.touch()
    found = of_store(place)
    assert (found.condition, found.text) == (Condition.WRONG, f"{place} is a file")


def overwrite_events(path: Path) -> None:
    """Overwrite the page with which the table of events begins."""

    async def create() -> None:
        async with make_store(path.parent):
            pass

    asyncio.run(create())
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'")
    data[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\x55" * PAGE_BYTES
    path.write_bytes(data)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.write_bytes(b"garbage!" * 4096), "not a database"),
        (overwrite_events, "malformed"),
        (lambda path: path.with_name(f"{path.name}.open").touch(), "missing"),
        (lambda path: [path.with_name(f"{path.name}.open").touch(), path.touch()], "missing"),
    ],
    ids=["something else", "damaged", "no file", "no log"],
)
def test_a_store_that_is_damaged_or_of_which_a_part_is_missing_is_wrong_though_an_older_one_was_set_aside(
    tmp_path: Path, make: Callable[[Path], object], text: str
) -> None:
    path = tmp_path / FILE_NAME
    path.with_name(f"{path.name}.damaged-T").touch()
    make(path)
    found = of_store(tmp_path)
    assert (found.condition, text in found.text) == (Condition.WRONG, True), found


def test_a_lock_that_cannot_be_opened_is_not_taken_for_none(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    assert not database.in_use(path)
    lock = path.with_name(f"{path.name}.lock")
    lock.symlink_to(lock)
    with pytest.raises(OSError, match="symbolic links"):
        database.in_use(path)


UNIT = Path(__file__).parents[4] / "systemd" / "oncegate.service"


@pytest.mark.parametrize(
    ("lanes", "limit", "conditions"),
    [
        (0, "64\n", [Condition.WRONG]),
        (0, "512\n", [Condition.FINE]),
        (0, "max\n", []),
        (0, None, []),
        (8, "512\n", [Condition.WRONG]),
    ],
)
def test_a_cluster_that_takes_more_threads_than_the_service_may_have_is_wrong(
    tmp_path: Path, lanes: int, limit: str | None, conditions: list[Condition]
) -> None:
    if limit is not None:
        (tmp_path / "pids.max").write_text(limit)
    findings = list(check_threads(15, lanes, tmp_path / "pids.max"))
    assert [finding.condition for finding in findings] == conditions
    assert all("TasksMax" in finding.text for finding in findings)


def test_the_unit_allows_as_many_as_a_large_cluster_takes() -> None:
    found = re.search(r"^TasksMax=([0-9]+)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    assert tasks_max(90) <= int(found[1])
    assert tasks_max(5, lanes=8) <= int(found[1])


SHORT = 0.05


def test_without_the_size_of_the_disk_or_its_bytes_there_are_no_years() -> None:
    measured = Measurement("m", "v", "overlay on x", None, 3e-3, 1e-2, 4e-2, Stored(1, 10), Stored(2, 1))
    assert measured.line().endswith("| 10 B or 1 B written an event")
    assert (measured.doubtful, replace(measured, flush_median=1e-5).doubtful) == (False, True)
    sized = replace(measured, capacity_bytes=1, single=Stored(1, 0), pack=Stored(2, 0))
    assert sized.line().endswith("in packs of 100")


def test_a_disk_that_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="there is no such folder; the agent makes it"):
        measure(tmp_path / "none", SHORT)
    monkeypatch.setattr(measuring, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(CommandError, match="are free"):
        measure(tmp_path, SHORT)


def test_a_disk_is_measured_in_one_line_or_json_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("doctor", "--measure", "--config", str(configured(tmp_path)))
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(measure, "__defaults__", (SHORT,))
    assert here(*command).stdout.splitlines()[0].count(" | ") >= 4
    found = json.loads(here(*command, "--json").stdout)
    assert 0 < found["flush_median"] <= found["flush_99"] <= found["flush_max"]
    assert 0 < found["single"]["events_per_second"] < found["pack"]["events_per_second"]
    assert found["pack_events"] == 100
    assert list((tmp_path / "state").iterdir()) == []
