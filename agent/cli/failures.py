"""The exit codes of the commands, and the form of their error messages."""

from __future__ import annotations

import sys

from agent.terminal import Colour, paint, printable

FAILURE = 1
USAGE = 2


def print_error(text: str) -> None:
    """Print an error message to standard error, each of its lines after the program's name."""
    for line in text.split("\n"):
        print(f"{paint('oncegate:', Colour.BAD, sys.stderr)} {printable(line)}", file=sys.stderr)
