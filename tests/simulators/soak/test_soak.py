"""Soaks: the plan from a seed, the figures of a run, the page of results, and a short run of all services."""

import json
from collections import Counter
from pathlib import Path

import pytest

from simulators.oracle.verdict import Verdict
from simulators.scenario import FaultKind, FaultTarget
from simulators.soak import plan, results
from simulators.soak.__main__ import main
from simulators.soak.run import with_repeated_records
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / results.PAGE
KEPT = ROOT / "docs" / "benchmarks" / "soak.json"
PART_SECONDS = 900.0


def test_a_seed_determines_the_faults_and_another_one_changes_them() -> None:
    first, again, other = (plan.scenario(seed, 3_600.0, PART_SECONDS, 80) for seed in (1, 1, 2))
    assert first == again
    assert first.faults != other.faults
    assert first.link.outages != other.link.outages


def test_each_part_kills_each_service_and_a_long_soak_has_every_fault() -> None:
    faults = plan.scenario(3, 6 * 3_600.0, PART_SECONDS, 80).faults
    for part in range(24):
        own = [one for one in faults if part * PART_SECONDS <= one.at < (part + 1) * PART_SECONDS]
        killed = {one.target for one in own if one.kind is FaultKind.KILL}
        assert killed == {FaultTarget.AGENT, FaultTarget.JOB, FaultTarget.KAFKA}
    kinds = Counter(one.kind for one in faults)
    assert set(kinds) == set(FaultKind) - {FaultKind.BACKUP, FaultKind.RESTORE}
    assert kinds[FaultKind.KILL] > 300


def test_exactly_once_a_repeated_record_is_doubled() -> None:
    found = Verdict(events=5, acked=5, refused=0, given_up=0, transmissions=5, rows=5, records=7, repeats=2)
    assert (found.faults, with_repeated_records(found).doubled) == ({}, 2)


def test_the_page_has_the_kept_results() -> None:
    assert results.with_results(PAGE.read_text(), results.read(KEPT)) == PAGE.read_text()


@pytest.mark.heavy
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("options", [(), ("--delivery", "exactly-once", "--lanes")])
def test_a_short_soak_loses_and_doubles_nothing_and_its_result_is_kept(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    kept = tmp_path / "docs" / "benchmarks" / "soak.json"
    page = tmp_path / "docs" / results.PAGE
    page.parent.mkdir()
    page.write_text(f"{results.BEGIN}\n{results.END}\n")
    folder = ("--folder", str(tmp_path / "soak"), "--keep", str(kept))
    assert main(["--hours", "0.015", "--rate", "30", *options, *folder], "soak") == 0
    [entry] = json.loads(kept.read_text())
    assert entry["rows"] >= entry["acked"] > 500  # a sensor may have given up an event that is there
    assert set(entry["found"].values()) == {0}
    assert {"agent killed", "job killed", "kafka killed"} <= set(entry["faults"])
    assert entry["checkpoints"] == 1
    assert {"agent memory", "job files", "table disk"} <= set(entry["start_middle_end"])
    assert f"| {entry['events']:,} |" in page.read_text()
    assert "</svg>" in page.with_name("soak.svg").read_text()
