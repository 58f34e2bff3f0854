"""Each system call of the agent fails once in each way, and the library that does so sees every one of them."""

import json

import pytest

from tests.crashes.running import run
from tests.crashes.system_calls import SCENARIOS

PARTS = 48

pytestmark = pytest.mark.heavy


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_whatever_system_call_fails_no_acked_event_is_lost_and_none_is_doubled(scenario: str, part: int) -> None:
    done = run("system_calls", "--scenario", scenario, "--part", f"{part}/{PARTS}")
    assert done.returncode == 0
    outcomes = json.loads(done.stdout)[scenario]["outcomes"]
    assert sum(outcomes["whole"].values()) > sum(sum(counts.values()) for counts in outcomes.values()) / 2


@pytest.mark.guarantee(1)
@pytest.mark.parametrize(
    ("mutant", "chosen"),
    [
        ("ack_before_commit", ("--object", "events.db-wal", "--call", "pwrite", "--part", "9/60")),
        ("errors_of_commits_ignored", ("--object", "events.db-wal", "--call", "fdatasync", "--part", "2/4")),
    ],
)
def test_a_mutant_is_revealed(mutant: str, chosen: tuple[str, ...]) -> None:
    done = run("system_calls", "--scenario", "killed", "--mutant", mutant, *chosen)
    assert done.returncode == 1
    assert "is acked and not there" in done.stderr
