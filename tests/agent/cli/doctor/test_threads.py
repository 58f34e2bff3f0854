"""The number of threads that a cluster requires, and the service's limit."""

import re
from pathlib import Path

import pytest

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.threads import check_threads, tasks_max

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
