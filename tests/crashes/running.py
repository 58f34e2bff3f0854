"""Runs the programs of this folder."""

import subprocess
import sys

SECONDS_MAX = 3_000


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with arguments, print what it has printed, and return it."""
    command = [sys.executable, "-m", f"tests.crashes.{program}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done
