"""A command with everything that it starts, as one group that a test can end."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_group(
    command: Sequence[str | Path],
    seconds_max: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    umask: int = -1,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; after `seconds_max`, or if the test is stopped, kill it and its children."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        umask=umask,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds_max)
        except BaseException:  # cancelled or timed out: the children would go on
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
