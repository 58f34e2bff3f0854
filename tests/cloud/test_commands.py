"""Audit and maintenance as command lines, after a real job, on both sinks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloud import maintenance
from simulators.services.process import Process
from simulators.services.spark import SparkOptions, submit
from tests.cloud.gateway import Gateway, readings, without_header
from tests.cloud.running import DELTA, POSTGRES, CloudSide

CLOUD = Path(maintenance.__file__).parent


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_the_audit_finds_nothing_amiss_and_maintenance_changes_nothing(cloud: CloudSide) -> None:
    gateway, neighbour = Gateway(), Gateway("gw-2", "00000000000000b2")
    events = readings(50)
    first = gateway.records(events)
    cloud.send([*first, *neighbour.records(events[:10]), without_header(first[0], "ce_id")], 0)
    cloud.start()
    cloud.wait_for_receipts(61)
    assert cloud.stop() == 0

    ends = ("--bootstrap-servers", cloud.bootstrap_servers, "--topic", cloud.topic, "--group", cloud.group)
    places = ("--output", str(cloud.folder / "audit"), "--report", str(cloud.folder / "audit.html"), "--grace", "0s")
    audit = run(cloud, "audit.py", *ends, *places, *cloud.sink_options())
    assert cloud.wait_for_end(audit) == 0, audit.log()
    assert "Every label is accounted for." in audit.log()
    assert "accepted 50, duplicate 10" in audit.log()
    assert "Every label is accounted for." in (cloud.folder / "audit.html").read_text()

    maintained = run(cloud, "maintenance.py", *cloud.sink_options())
    assert cloud.wait_for_end(maintained) == 0, maintained.log()
    assert cloud.ids() == [str(number) for number in range(50)]

    cloud.send(gateway.records(readings(5, start=50)), 0)
    cloud.start()
    cloud.wait_for_receipts(66)
    assert cloud.ids() == [str(number) for number in range(55)]


def run(cloud: CloudSide, script: str, *arguments: str) -> Process:
    process = submit(CLOUD / script, arguments, cloud.folder / script, SparkOptions())
    cloud.jobs.append(process)
    return process


@pytest.mark.parametrize("wrong", [("--retain", "6d"), ("--sink", "postgres"), ("--retain", "soon")])
def test_wrong_usage_is_refused(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        maintenance.parse(["--table", "t", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_nothing_beside_the_programs_hides_a_module_of_the_standard_library() -> None:
    # spark-submit puts the programs' folder first on the path.
    assert {path.stem for path in CLOUD.iterdir()} & sys.stdlib_module_names == set()
