"""The whole path on real services: sensors, radio, agent, Kafka, Spark, table, receipts, with kills."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulators import ledger
from simulators.evidence import delta
from simulators.evidence.row import Row
from simulators.ledger import Acked, Happened, Reported, Sent
from simulators.oracle.statement import canonical
from simulators.payloads import KnownBy, identified_by
from tests.simulators.oracle.judged_field import audit
from tests.support import commands
from tests.support.waiting import wait_until

RUN_SECONDS_MAX = 400
END_SECONDS_MAX = 60

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(RUN_SECONDS_MAX + 4 * END_SECONDS_MAX)]


def _demo(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "simulators.demo", "--folder", str(folder), *arguments]


def _left_behind(folder: Path) -> list[str]:
    """Return the command lines of the processes that mention the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder) in command:
            found.append(command)
    return found


@pytest.mark.guarantee(0)
def test_nothing_is_lost_or_doubled_though_everything_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = commands.run(*_demo(folder, "--events", "3000", "--kills", "1"), seconds_max=RUN_SECONDS_MAX)
    print(done.stdout)  # includes the seed, for a repetition
    assert done.returncode == 0, done.stdout + done.stderr
    assert _left_behind(folder) == []

    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["kept"]
    assert verdict["events"] == verdict["acked"] == verdict["rows"] >= 3000
    assert verdict["transmissions"] > 1.2 * verdict["events"]
    assert verdict["records"] >= verdict["events"]
    in_flight = _in_flight_at_kills(folder)
    assert sorted(in_flight) == ["agent", "job"]
    assert all(in_flight.values())
    _judge_again(folder)


def _in_flight_at_kills(folder: Path) -> dict[str, int]:
    """Return how many events were sent and not yet acked when each process was killed."""
    in_flight: set[int] = set()
    at_kills = {}
    for line in ledger.read(folder / "ledger.jsonl"):
        if isinstance(line, Sent):
            in_flight.add(line.mark)
        elif isinstance(line, Acked):
            in_flight.discard(line.mark)
        elif isinstance(line, Happened) and line.what == "killed":
            at_kills[line.part] = len(in_flight)
    return at_kills


def _judge_again(folder: Path) -> None:
    """Judge ledger and table again, and check that the oracle finds missing and doubled rows."""
    lines = list(ledger.read(folder / "ledger.jsonl"))
    events = [line.event for line in lines if isinstance(line, Reported)]
    rows = list(delta.read(folder / "cloud" / "table"))
    verdict = audit(lines, rows)
    assert verdict.kept
    assert {identified_by(event) for event in events} == set(KnownBy)
    assert audit(lines, rows[1:]).lost == 1
    assert audit(lines, [*rows, rows[0]]).doubled == 1
    assert audit(lines, _by_content(rows)).lost >= 0.3 * verdict.events


def _by_content(rows: list[Row]) -> list[Row]:
    """Return the number of rows after a dedup by content alone."""
    return list({(row.device, row.type, canonical(row.data)): row for row in rows}.values())


@pytest.mark.heavy
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    folder, output = tmp_path / "demo", tmp_path / "output"
    with output.open("w") as written, subprocess.Popen(_demo(folder, "--kills", "0"), stdout=written) as run:
        try:
            wait_until((folder / "logs" / "agent-1.log").exists, "the agent is started", RUN_SECONDS_MAX)
            run.send_signal(number)
            if number is signal.SIGINT:  # the first one ends the sensors, and has the run judged
                wait_until(lambda: "press again" in output.read_text(), "the run is about to end", END_SECONDS_MAX)
                run.send_signal(number)
            run.wait(END_SECONDS_MAX)
        finally:
            run.kill()
    assert run.returncode == 130
    assert "interrupted" in output.read_text()
    assert (folder / "logs" / "kafka.log").exists()
    assert _left_behind(folder) == []
