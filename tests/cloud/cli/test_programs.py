"""Job, query, audit and maintenance by `oncegate-cloud`, on a real broker, on both sinks."""

from __future__ import annotations

import json
import subprocess

import pytest

from simulators.services.process import Command, Process
from tests.cloud.cli.test_command_line import PROGRAM
from tests.cloud.gateway import Gateway, readings, without_header
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.kafka]


def start(cloud: CloudSide, name: str, *words: str) -> Process:
    process = Process(Command(name, (str(PROGRAM), *words), cloud.folder / f"{name}.log", cloud.folder))
    process.start()
    cloud.jobs.append(process)
    return process


def run_job(cloud: CloudSide) -> None:
    gateway = Gateway()
    records = gateway.records(readings(20))
    cloud.send([*records, without_header(records[0], "ce_id")], 0)
    ends = cloud.ends()
    start(cloud, "job", "job", *ends, *cloud.sink_options(), "--checkpoint", cloud.place("checkpoint"))
    cloud.wait_for_receipts(21)
    assert cloud.stop() == 0


def query(cloud: CloudSide, statement: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [str(PROGRAM), "query", *cloud.sink_options(), statement, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_job_query_audit_and_maintenance(cloud: CloudSide) -> None:
    run_job(cloud)
    done = query(cloud, "SELECT count(*) AS events, min(sequence) AS first FROM events", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"events": 20, "first": 1}), done.stderr
    rows = query(cloud, "SELECT name, count(*) AS readings FROM readings GROUP BY name ORDER BY name").stdout
    assert rows.split()[:2] == ["name", "readings"]
    assert "20" in rows.split()
    assert query(cloud, "SELECT reason FROM quarantine", "--format", "csv").stdout.splitlines()[0] == "reason"
    cut = query(cloud, "SELECT id FROM events", "--rows", "3", "--format", "csv")
    assert len(cut.stdout.splitlines()) == 4
    assert "only the first 3 rows" in cut.stderr
    wrong = query(cloud, "SELECT nothing FROM events")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "nothing" in wrong.stderr
    assert "Traceback" not in wrong.stderr

    ends = cloud.ends()
    audit = start(cloud, "audit", "audit", *ends, *cloud.sink_options(), "--output", str(cloud.folder / "audit"))
    assert cloud.wait_for_end(audit) == 0, audit.log()
    maintained = start(cloud, "maintenance", "maintenance", *cloud.sink_options())
    assert cloud.wait_for_end(maintained) == 0, maintained.log()
