"""Runs the programs of this folder."""

import sys

from tests.support import commands

SECONDS_MAX = 3_000


def run(program: str, *arguments: str) -> commands.Completed:
    """Run a program with arguments, print what it has printed, and return it."""
    done = commands.run(sys.executable, "-m", f"tests.crashes.{program}", *arguments, seconds_max=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done
