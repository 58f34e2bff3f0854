import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.event import Event
from simulators import ledger
from simulators.evidence.row import Row
from simulators.judge.command import main
from simulators.judge.remote import WAIT_SECONDS_MAX, Clock, judge_remote_run, stands_still
from simulators.judge.sink import Sink
from simulators.payloads import device_name, devices_of
from tests.simulators.oracle.delta_tables import write_table
from tests.simulators.oracle.judged_field import NOW, row_of, rows_of, write_ledger_of
from tests.simulators.run.minimal_gateway import minimal_gateway
from tests.simulators.run.test_run import SCENARIO
from tests.support.waiting import until

EVENTS = [Event(device_name(0, 7), id=number) for number in range(3)]
ROWS = [row_of(event, number) for number, event in enumerate(EVENTS, start=1)]


class HandDrivenClock:
    """A clock that advances only during sleeps, and the number of rows at its time."""

    def __init__(self, *counts: int) -> None:
        self.now = 0.0
        self.counts = counts
        self.reads = 0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def count(self) -> int:
        self.reads += 1
        return self.counts[min(int(self.now), len(self.counts) - 1)]

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


async def test_rows_stand_still_once_none_has_come_for_so_long() -> None:
    driven = HandDrivenClock(*range(20))
    assert await stands_still(driven.count, 30, clock=driven.clock)
    assert 19 + 30 <= driven.now < 19 + 35


async def test_rows_that_never_stand_still_are_not_waited_for_for_ever() -> None:
    driven = HandDrivenClock(*range(100_000))
    assert not await stands_still(driven.count, 30, clock=driven.clock)
    assert WAIT_SECONDS_MAX <= driven.now < WAIT_SECONDS_MAX + 5


async def test_a_look_that_takes_longer_than_the_standstill_is_followed_by_another() -> None:
    driven = HandDrivenClock(0, 1, 2, 3)

    async def slow() -> int:
        await driven.sleep(100)
        return await driven.count()

    assert await stands_still(slow, 30, clock=driven.clock)
    assert driven.reads >= 2


async def test_who_is_stopped_has_not_seen_a_standstill() -> None:
    driven = HandDrivenClock(1)
    assert not await stands_still(driven.count, 30, lambda: driven.now > 3, driven.clock)


def _played(folder: Path, *events: Event, ended: bool = True) -> Path:
    noted = {"devices": devices_of(7), "seed": 7, "scenario": {"name": "small", "description": "It."}}
    write_ledger_of(folder / "ledger.jsonl", events or EVENTS, noted, NOW, ended=ended)
    return folder


def _judge(folder: Path, *, final: bool = False, standstill: str = "0") -> int:
    options = ("--table", str(folder / "table"), "--standstill", standstill)
    return main([str(folder), *options, *(["--final"] if final else [])], "oncegate-sim judge")


def _verdict(folder: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((folder / "verdict.json").read_text())
    return document


@pytest.mark.parametrize(
    ("stored", "final", "expected", "said"),
    [
        (ROWS, False, (0, 0, 0), "Nothing was lost"),
        (ROWS, True, (0, 0, 0), "Nothing was lost"),
        (ROWS[:2], False, (1, 0, 1), "No verdict. 1 acked events are not there"),
        (ROWS[:2], True, (1, 1, 0), "1 lost"),
        ([], False, (1, 0, 3), "No verdict. 3 acked events are not there"),
        ([], True, (1, 3, 0), "3 lost"),
        (ROWS[1:], False, (1, 1, 0), "1 lost"),
    ],
)
def test_a_run_is_judged_later_by_its_ledger(
    stored: Sequence[Row],
    final: bool,
    expected: tuple[int, int, int],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _played(tmp_path)
    write_table(tmp_path / "table", [row_of(Event("d", id=1), 9), *stored])
    status = _judge(tmp_path, final=final)
    assert (status, _verdict(tmp_path)["lost"], _verdict(tmp_path)["unknown"]) == expected
    assert _verdict(tmp_path)["rows"] == len(stored)
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "report.html").read_text()


def test_one_of_two_equal_events_may_be_in_transit_too(tmp_path: Path) -> None:
    twin = Event(EVENTS[0].device, data={"a": 1})
    write_table(tmp_path / "table", [row_of(twin)])
    ledger_file = _played(tmp_path, twin, twin) / "ledger.jsonl"
    sink = Sink(table=tmp_path / "table")
    verdict = judge_remote_run(ledger_file, sink)
    assert (verdict.kept, verdict.faults, verdict.unknown) == (False, {}, 1)
    assert judge_remote_run(ledger_file, sink, final=True).faults == {"lost": 1}


def test_an_interrupted_run_stays_one_and_what_it_acked_must_be_there_at_last(tmp_path: Path) -> None:
    _played(tmp_path, ended=False)
    write_table(tmp_path / "table", ROWS[:2])
    assert _judge(tmp_path) == 130
    assert _verdict(tmp_path)["lost"] == 0
    assert _judge(tmp_path, final=True) == 1
    assert _verdict(tmp_path)["lost"] == 1
    write_table(tmp_path / "table", ROWS[2:])
    assert _judge(tmp_path) == 130


@pytest.mark.parametrize("broken", [False, True], ids=["no table", "a table without its files"])
def test_where_the_table_cannot_be_read_nothing_is_called_lost(
    broken: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _played(tmp_path)
    if broken:
        write_table(tmp_path / "table", ROWS)
        for file in (tmp_path / "table").glob("*.parquet"):
            file.unlink()
    assert _judge(tmp_path) == 1
    output = capsys.readouterr().out
    assert "judge failed: " in output
    assert str(tmp_path / "table") in output.replace("\n", "")
    assert "lost" not in output
    assert not (tmp_path / "verdict.json").exists()


def test_a_ledger_without_a_run_is_an_error_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledger.jsonl").touch()
    write_table(tmp_path / "table", ROWS)
    assert _judge(tmp_path, standstill="3600") == 1
    output = capsys.readouterr().out.replace("\n", "")
    assert f"judge failed: {tmp_path / 'ledger.jsonl'} describes no run" in output


@pytest.mark.guarantee(0)
async def test_rows_that_come_after_the_sensors_have_ended_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SCENARIO.format(seconds=1))
    table, folder = tmp_path / "table", tmp_path / "run"
    ledger_file = folder / "ledger.jsonl"
    async with minimal_gateway() as gateway:
        target = ("--target", f"coap://[::1]:{gateway.address[1]}", "--table", str(table), "--standstill", "5")
        command = (sys.executable, "-m", "simulators.cli", "run", str(tmp_path / "small.toml"))
        process = await asyncio.create_subprocess_exec(
            *command, *target, "--folder", str(folder), stdout=asyncio.subprocess.PIPE
        )
        try:
            await until(lambda: ledger_file.exists() and b'"end"' in ledger_file.read_bytes(), "the sensors have ended")
            reported = rows_of(ledger.read(ledger_file))
            write_table(table, reported)
            output, _ = await asyncio.wait_for(process.communicate(), 120)
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 0, output.decode()
    assert _verdict(folder)["rows"] == len(reported) > 5
