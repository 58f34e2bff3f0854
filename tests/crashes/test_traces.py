"""What the agent notes of its work is a behaviour of the model, and no other order of the same lines is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crashes.traces import Line, changed, fits_any, read, without_resends

SECONDS_MAX = 900
pytestmark = pytest.mark.heavy


def traces(folder: Path, *arguments: str) -> list[list[Line]]:
    """Run the load without a fault and with kills; return the traces."""
    command = [sys.executable, "-m", "tests.crashes.system_calls", "--scenario", "new", "--traces", str(folder)]
    subprocess.run([*command, *arguments], check=False, timeout=SECONDS_MAX)
    return [read(file) for file in sorted(folder.iterdir(), key=lambda file: int(file.stem))]


@pytest.mark.guarantee(1)
def test_traces_with_and_without_kills_fit_the_model_and_no_changed_one_does(tmp_path: Path) -> None:
    undisturbed, *killed = traces(tmp_path, "--fault", "kill", "--part", "40/60")
    assert len(killed) > 3
    assert [trace for trace in (undisturbed, *killed) if not fits_any([trace])] == []
    plain = without_resends(undisturbed)
    assert fits_any([plain])
    assert not fits_any(list(changed(plain)))


@pytest.mark.guarantee(1)
def test_the_trace_of_an_agent_that_acks_before_the_commit_does_not_fit(tmp_path: Path) -> None:
    (trace,) = traces(tmp_path, "--object", "none", "--mutant", "ack_before_commit")
    assert not fits_any([trace])
