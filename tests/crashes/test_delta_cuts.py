"""The cloud job with its Delta table on a disk that forgets: no power cut takes a receipted event from the table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_disk import small_disk

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark]
SECONDS_MAX = 3_000


@pytest.fixture(autouse=True)
def _mountable(tmp_path: Path) -> None:
    """Skip the tests where file systems cannot be mounted."""
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    with small_disk(tmp_path / "probe", 1):
        pass


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crashes.delta_cuts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done


def test_no_power_cut_takes_a_receipted_event_from_the_table() -> None:
    done = run("--cuts", "1000")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["steps"]["Ack"] >= 3
    assert sum(found["cuts"].values()) == 1_000


def test_receipts_that_do_not_wait_for_the_flush_are_revealed() -> None:
    done = run("--cuts", "200", "--seed", "1", "--mutant", "receipts_without_flush")
    assert done.returncode == 1
    assert "is receipted and not there" in done.stderr
