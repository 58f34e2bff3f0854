"""Audit and maintenance as command lines, after a real job, on both sinks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloud import maintenance
from simulators.services.process import Process
from simulators.services.spark import SparkOptions, submit
from tests.cloud.running import CloudSide

CLOUD = Path(maintenance.__file__).parent


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
