"""The exit codes of the commands, and the form of their error messages."""

import sys

from agent.terminal import Colour, paint, printable

FAILURE = 1
USAGE = 2


class CommandError(Exception):
    """A command cannot do what it was asked for: the message says why, and the command ends with `code`."""

    code = FAILURE


class UsageError(CommandError):
    """The command line asks for what cannot be."""

    code = USAGE


def print_error(text: str) -> None:
    """Print an error message to standard error, each of its lines after the program's name."""
    for line in text.split("\n"):
        print(f"{paint('oncegate:', Colour.BAD, sys.stderr)} {printable(line)}", file=sys.stderr)
