"""A run is judged once its rows stand still, and again whenever somebody wants."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.event import Event
from simulators import command_line
from simulators.evidence.row import Row
from simulators.judge.standstill import WAIT_SECONDS_MAX, Passing, stands_still
from simulators.ledger import Ledger
from simulators.voice import device_name, devices_of
from tests.simulators.tables import write_table
from tests.simulators.truth import row_of

EVENTS = [Event(device_name(0, 7), id=number) for number in range(3)]
ROWS = [row_of(event, number) for number, event in enumerate(EVENTS, start=1)]


class Hand:
    """A clock that stands still but while somebody sleeps, and the rows that there are by it."""

    def __init__(self, *counts: int) -> None:
        self.now = 0.0
        self.counts = counts
        self.looks = 0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def count(self) -> int:
        self.looks += 1
        return self.counts[min(int(self.now), len(self.counts) - 1)]

    @property
    def passing(self) -> Passing:
        return Passing(lambda: self.now, self.sleep)


async def test_rows_stand_still_once_none_has_come_for_so_long() -> None:
    hand = Hand(*range(20))
    assert await stands_still(hand.count, 30, passing=hand.passing)
    assert 19 + 30 <= hand.now < 19 + 35


async def test_rows_that_never_stand_still_are_not_waited_for_for_ever() -> None:
    hand = Hand(*range(100_000))
    assert not await stands_still(hand.count, 30, passing=hand.passing)
    assert WAIT_SECONDS_MAX <= hand.now < WAIT_SECONDS_MAX + 5


async def test_a_look_that_takes_longer_than_the_standstill_is_followed_by_another() -> None:
    hand = Hand(0, 1, 2, 3)

    async def slow() -> int:
        await hand.sleep(100)
        return await hand.count()

    assert await stands_still(slow, 30, passing=hand.passing)
    assert hand.looks >= 2


async def test_who_is_stopped_has_not_seen_a_standstill() -> None:
    hand = Hand(1)
    assert not await stands_still(hand.count, 30, lambda: hand.now > 3, hand.passing)


async def test_without_a_standstill_asked_for_it_is_judged_at_once() -> None:
    hand = Hand(1)
    assert await stands_still(hand.count, 0, passing=hand.passing)
    assert hand.now == 0


def _played(folder: Path, *, ended: bool = True) -> Path:
    with Ledger(folder / "ledger.jsonl", lambda: 1_763_706_000_000) as ledger:
        ledger.begin({"devices": devices_of(7), "seed": 7, "scenario": {"name": "small", "shows": "It."}})
        for event in EVENTS:
            mark = ledger.tell(event)
            ledger.sent(mark)
            ledger.acked(mark)
        if ended:
            ledger.end()
    return folder


def _judge(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    table = ("--table", str(folder / "table"), "--standstill", "0")
    monkeypatch.setattr(sys, "argv", ["oncegate-sim", "judge", str(folder), *(options or table)])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def _verdict(folder: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((folder / "verdict.json").read_text())
    return document


@pytest.mark.parametrize(
    ("stored", "status", "lost", "said"),
    [
        (ROWS, 0, 0, "Nothing was lost"),
        (ROWS[:2], 1, 1, "1 lost"),
        ([], 1, 3, "3 lost"),
    ],
)
def test_a_run_is_judged_later_by_its_ledger(
    stored: Sequence[Row],
    status: int,
    lost: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _played(tmp_path)
    write_table(tmp_path / "table", [row_of(Event("d", id=1), 9), *stored])
    assert _judge(monkeypatch, tmp_path) == status
    assert (_verdict(tmp_path)["lost"], _verdict(tmp_path)["rows"]) == (lost, len(stored))
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "report.html").read_text()


def test_what_came_after_a_run_was_judged_is_found_by_judging_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _played(tmp_path)
    write_table(tmp_path / "table", ROWS[:1])
    assert _judge(monkeypatch, tmp_path) == 1
    write_table(tmp_path / "table", ROWS[1:])
    assert _judge(monkeypatch, tmp_path) == 0
    assert _verdict(tmp_path)["kept"] is True


def test_an_interrupted_run_stays_one_and_what_it_acked_must_be_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _played(tmp_path, ended=False)
    write_table(tmp_path / "table", ROWS[:2])
    assert _judge(monkeypatch, tmp_path) == 1
    assert _verdict(tmp_path)["lost"] == 1
    write_table(tmp_path / "table", ROWS[2:])
    assert _judge(monkeypatch, tmp_path) == 130


def test_where_nothing_is_looked_at_there_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _played(tmp_path)
    assert _judge(monkeypatch, tmp_path, "--standstill", "0") == 1
    assert _verdict(tmp_path)["kept"] is False


def test_a_run_that_is_not_there_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _judge(monkeypatch, tmp_path) == 2
    assert "ledger.jsonl does not exist" in capsys.readouterr().err
