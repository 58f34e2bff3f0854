"""The scenario alarm-in-the-backlog: nothing is lost or doubled, and no alarm waits for the backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console

from simulators import ledger
from simulators.display import Display
from simulators.evidence import delta
from simulators.ledger import Acked, Reported
from simulators.payloads import device_name
from simulators.run.options import RunOptions
from simulators.run.play import Stop
from simulators.run.run import run
from simulators.run.services import Overrides
from simulators.scenario import find

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark]

ALARM_SECONDS_MAX = {"at-least-once": 5.0, "exactly-once": 20.0}
"""In the median, and the batches of the job in addition; open transactions of other lanes hold records back."""
BATCH_SECONDS_MAX = 5.0
BACKLOG_SECONDS_MIN = 20.0


def delays(folder: Path, devices: range, start_ms: int, end_ms: int) -> Iterator[float]:
    """Yield how long events of some devices took into the table that were acked within a span, in seconds."""
    reported = {line.mark: line.event for line in ledger.read(folder / "ledger.jsonl") if isinstance(line, Reported)}
    names = {device_name(index) for index in devices}
    rows = {(row.device, row.id): row.at for row in delta.read(folder / "cloud" / "table") if row.id is not None}
    for line in ledger.read(folder / "ledger.jsonl"):
        if not isinstance(line, Acked) or not start_ms <= line.at < end_ms:
            continue
        event = reported[line.mark]
        if event.device in names and event.id is not None:
            at = rows[event.device, str(event.id)]
            assert at is not None
            yield (at - line.at) / 1000


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_an_alarm_is_in_the_table_at_once_and_the_backlog_follows(tmp_path: Path, mode: str) -> None:
    scenario = find("alarm-in-the-backlog")
    folder = tmp_path / "run"
    options = RunOptions(scenario, seed=7, folder=folder, overrides=Overrides(delivery=mode))
    verdict = asyncio.run(run(options, Display(Console()), Stop()))
    print(verdict)
    assert verdict.faults == {}
    first = next(line.at for line in ledger.read(folder / "ledger.jsonl") if isinstance(line, Reported))
    down, killed = scenario.faults
    span = (first + int((down.seconds + 5) * 1000), first + int(killed.at * 1000))
    alarms = list(delays(folder, range(16), *span))
    others = list(delays(folder, range(16, 40), *span))
    print(f"mode={mode} alarms={len(alarms)} median={median(alarms):.1f} max={max(alarms):.1f} s")
    print(f"mode={mode} others={len(others)} median={median(others):.1f} min={min(others):.1f} s")
    assert median(alarms) <= ALARM_SECONDS_MAX[mode] + BATCH_SECONDS_MAX
    assert median(others) >= BACKLOG_SECONDS_MIN
