"""`oncegate version`: the version of the program, and its form."""

from __future__ import annotations

import argparse

from agent import release

EXAMPLES = """example:
  oncegate version
"""


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no options."""


def run(_: argparse.Namespace) -> int:
    """Print both in one line."""
    print(f"oncegate {release.version()} {release.form()}")
    return 0
