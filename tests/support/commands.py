"""Runs a command to its end, with everything that it starts as one group that a test can end."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Completed = subprocess.CompletedProcess[str]
SECONDS_MAX = 1_800.0


def run(
    *command: str | Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    text: str = "",
    umask: int = -1,
    seconds_max: float = SECONDS_MAX,
) -> Completed:
    """Run a command with `text` as its input and `environment` in addition to that of this process.

    After `seconds_max`, or if the test is stopped, it is killed with its children.
    """
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        umask=umask,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(text, timeout=seconds_max)
        except BaseException:  # cancelled or timed out: the children would go on
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Completed(command, process.returncode, output, errors)


def output_of(*command: str | Path, **given: Any) -> str:
    """Return what a command prints; fail with all that it says where it does not end with 0."""
    done = run(*command, **given)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
