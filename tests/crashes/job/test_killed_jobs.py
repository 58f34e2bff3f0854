"""The cloud job killed right before its changes of table and checkpoint: no event is lost or doubled."""

import json

import pytest

from tests.crashes.running import run
from tests.support import changes

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not changes.is_supported(), reason="knows the system calls of x86-64 only"),
]


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("scenario", "part", "also"),
    [
        ("first", "7/48", ()),
        ("later", "5/16", ()),
        ("later", "5/16", ("--effects", "delta")),
        ("later", "5/16", ("--effects", "postgres")),
        ("first", "7/192", ("--sink", "iceberg")),
        ("later", "5/144", ("--sink", "iceberg")),
    ],
)
def test_whenever_the_job_is_killed_no_event_is_lost_or_doubled(
    scenario: str, part: str, also: tuple[str, ...]
) -> None:
    done = run("job.killed_jobs", "--scenario", scenario, "--part", part, *also)
    assert done.returncode == 0
    assert json.loads(done.stdout)["faults"] >= 4
    assert " 1 of " in done.stderr  # the progress


@pytest.mark.parametrize(("fault", "part"), [("EIO", "4/20"), ("ENOSPC", "4/20"), ("short", "2/6")])
def test_whichever_change_fails_no_event_is_lost_or_doubled(fault: str, part: str) -> None:
    done = run("job.killed_jobs", "--scenario", "later", "--fault", fault, "--part", part)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["faults"] >= 2


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("mutant", "also", "told"),
    [
        ("receipts_before_rows", (), "is receipted and not there"),
        ("progress_before_effects", ("--effects", "delta"), "is receipted without effect"),
    ],
)
def test_the_wrong_order_is_revealed(mutant: str, also: tuple[str, ...], told: str) -> None:
    done = run("job.killed_jobs", "--scenario", "later", "--part", "5/8", "--mutant", mutant, *also)
    assert done.returncode == 1
    assert told in done.stdout
