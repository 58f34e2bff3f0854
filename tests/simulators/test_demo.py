from __future__ import annotations

import html
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from contract.event import Event
from simulators.demo import command, options, report
from simulators.demo.run import DemoResult, complete
from simulators.demo.summary import BrokerOutage, Kill, Summary
from simulators.ledger import Acked, Ledger, Line, Reported, Sent, read
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.judge import judge
from simulators.oracle.verdict import BROKEN, Verdict
from simulators.report.timeline import timeline
from simulators.run.gateway import GatewayStatus
from simulators.run.job import Job

BEGIN = 1_763_706_000_000
VERDICT = Verdict(events=3, acked=3, refused=0, given_up=0, transmissions=5, rows=3, records=4, repeats=1)
GOOD = Summary(
    verdict=VERDICT,
    requests=5,
    accepted=3,
    duplicates=1,
    equal_readings=1,
    seconds=12.3,
    sensors=1_200,
    seed=7,
    kills=(Kill("agent", "2025-11-21T06:20:01.500Z", 4, 5, "batch 3: <write>"),),
    outages=(BrokerOutage("2025-11-21T06:20:02.000Z", "2025-11-21T06:20:04.000Z"),),
)


def _broken(name: str) -> Summary:
    counts: dict[str, Any] = {name: 2}
    return replace(GOOD, verdict=replace(VERDICT, **counts))


def _concluded(evidence: DemoResult, folder: Path) -> tuple[int, str]:
    """Return the demo's exit status and its output."""
    console = Console(record=True, width=140, file=io.StringIO())
    return command._conclude(evidence, options.DemoOptions(7, folder=folder), console), console.export_text()


def test_a_run_without_a_fault_ends_with_status_0(tmp_path: Path, evidence: DemoResult) -> None:
    status, printed = _concluded(evidence, tmp_path)
    assert status == 0
    assert "Nothing was lost, nothing was doubled" in printed
    assert json.loads((tmp_path / "summary.json").read_text())["kept"] is True


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_fails_the_demo_and_stands_in_table_summary_and_report(
    tmp_path: Path, evidence: DemoResult, name: str
) -> None:
    status, printed = _concluded(replace(evidence, summary=_broken(name)), tmp_path)
    assert status == 1
    assert f"The guarantees were violated: 2 {name}." in printed
    assert re.search(rf"{re.escape(BROKEN[name])}\W+2\b", printed)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert (figures[name], figures["kept"]) == (2, False)
    page = (tmp_path / "report.html").read_text()
    assert f"The guarantees were violated: 2 {name}." in page
    assert f"<td>{html.escape(BROKEN[name])}</td><td class=number>2</td>" in page


def test_declared_limits_stand_in_table_summary_and_report(tmp_path: Path, evidence: DemoResult) -> None:
    limited = replace(GOOD, verdict=replace(VERDICT, declared={"equal-events": 4}))
    status, printed = _concluded(replace(evidence, summary=limited), tmp_path)
    assert status == 0
    assert re.search(r"declared, equal-events: .*\b4\b", printed)
    assert json.loads((tmp_path / "summary.json").read_text())["declared"] == {"equal-events": 4}
    assert "declared, equal-events: " in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("acked", "outbox", "fault"), [(3, 0, {}), (2, 0, {"unacked": 1}), (3, 5, {"unreceipted": 5})])
def test_what_has_no_ack_and_what_has_no_receipt_is_a_fault_of_the_demo(
    acked: int, outbox: int, fault: dict[str, int]
) -> None:
    status = GatewayStatus(accepted=3, duplicates=0, new=outbox, forwarded=0)
    assert complete(replace(VERDICT, acked=acked), status).faults == fault


def test_the_summary_is_written_with_the_keys_that_others_read(tmp_path: Path) -> None:
    GOOD.write(tmp_path / "summary.json")
    figures = json.loads((tmp_path / "summary.json").read_text())
    keys = "sensors events transmissions acked accepted duplicates kafka_records rows seconds kills declared kept"
    assert {*keys.split(), *BROKEN} <= set(figures)
    assert figures["kills"] == [
        {
            "process": "agent",
            "time": "2025-11-21T06:20:01.500Z",
            "unacked": 4,
            "outbox_rows": 5,
            "batch_stage": "batch 3: <write>",
        }
    ]


def test_the_time_line_counts_what_had_arrived() -> None:
    event = Event("d", id=1)
    lines: list[Line] = [
        Reported(BEGIN, 1, event),
        Sent(BEGIN, 1),
        Reported(BEGIN + 600, 2, event),
        Acked(BEGIN + 700, 1),
    ]
    line = timeline(lines, [BEGIN + 800], [(BEGIN + 1000, 2), (BEGIN + 1000, 0)])
    assert line.seconds == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert line.reported == [0, 1, 1, 2, 2, 2]
    assert line.acked == [0, 0, 0, 1, 1, 1]
    assert line.in_kafka == [0, 0, 0, 0, 1, 1]
    assert line.in_table == [0, 0, 0, 0, 0, 2]
    assert line.second(BEGIN + 1500) == 1.5


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


@pytest.fixture
def evidence(tmp_path: Path) -> DemoResult:
    moments = iter(range(BEGIN, BEGIN + 100_000, 500))
    with Ledger(tmp_path / "ledger.jsonl", lambda: next(moments)) as ledger:
        for number in range(3):
            mark = ledger.reported(Event("d", id=number, data={"<b>": number}))
            ledger.sent(mark)
            ledger.acked(mark)
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(read(tmp_path / "ledger.jsonl"))
        verdict = judge(evidence)
    first_times = [BEGIN + 1000, BEGIN + 2000, BEGIN + 3000]
    summary = replace(GOOD, verdict=replace(VERDICT, violations=verdict.violations))
    return DemoResult(summary, tmp_path / "ledger.jsonl", first_times, [(BEGIN + 4000, 3)])


def test_the_report_needs_nothing_but_itself(tmp_path: Path, evidence: DemoResult) -> None:
    report.write(evidence, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    outline = _Outline()
    outline.feed(page)
    assert outline.tags.count("svg") == 4
    assert all(reference.startswith(("#", "data:")) for reference in outline.references)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "script" not in outline.tags


def test_the_job_is_followed_by_its_log(tmp_path: Path) -> None:
    job = Job(tmp_path / "cloud", tmp_path / "job.log", "127.0.0.1:1")

    def after(*lines: str) -> tuple[str, bool, bool]:
        (tmp_path / "job.log").write_text("".join(f"2026-01-01 INFO cloud.stream.batch {line}\n" for line in lines))
        return job.stage(), job.in_a_batch, job.has_committed

    assert after() == ("starting", False, False)
    assert after("batch=6 stage=receipt offsets=3") == ("after batch 6", False, False)
    lines = ["batch=7 stage=planned offsets=9", "batch=7 stage=write passes=1"]
    assert after(*lines) == ("batch 7: write", True, False)
    lines.append("batch=7 stage=committed rows=9")
    assert after(*lines) == ("batch 7: committed", True, True)
    lines += ["batch=7 stage=receipt offsets=9", "batch=7 stage=done rows_in=9"]
    assert after(*lines) == ("after batch 7", False, True)


@pytest.mark.parametrize(
    ("arguments", "sensors", "events"),
    [
        ([], 240, 10_000),
        (["--events", "3000"], 240, 3_000),
        (["--events", "50"], 5, 50),
        (["--events", "1"], 1, 1),
        (["--sensors", "1"], 1, 10_000),
        (["--sensors", "5000"], 5_000, 50_000),
        (["--sensors", "5", "--events", "50"], 5, 50),
        (["--sensors", "32768"], 32_768, 327_680),
    ],
)
def test_sensors_and_events_fit_together(arguments: list[str], sensors: int, events: int) -> None:
    parsed = options.parse(arguments, "demo")
    assert (parsed.sensors, parsed.events_min) == (sensors, events)
    (plan,) = options.scenario(sensors).fleets
    assert plan.sensors == sensors
    assert sensors / plan.every_seconds <= options.EVENTS_PER_SECOND + 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sensors", "6", "--events", "59"],
            "argument --sensors: 6 sensors need --events 60 at least, or no --events",
        ),
        (["--sensors", "32769"], "argument --sensors: at most 32768 are possible"),
        (["--sensors", "0"], "argument --sensors: at least 1 is needed"),
        (["--sensors", "many"], "argument --sensors: 'many' is no natural number"),
        (["--minutes", "-1"], "argument --minutes: '-1' is no natural number"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused_with_what_would(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([f"{arguments[0]}={arguments[1]}", *arguments[2:]], "demo")
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"demo: error: {message}"


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = _simulators("demo", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert "something else" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def _simulators(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulators.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
