"""Run the heavy tests that CI runs after `make test`: `python -m tests.ci [--list]`."""

from __future__ import annotations

import argparse
import sys

import pytest

from tests.ci.selection import SECONDS_MAX, Selection, read_list


def main() -> int:
    """Run or show the list, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show what would run, and run nothing")
    options = parser.parse_args()
    tests = read_list()
    arguments = [
        "-m",
        "heavy",
        "--durations-min=1",
        "-o",
        f"faulthandler_timeout={SECONDS_MAX}",
        "--durations=0",
        *tests,
    ]
    return pytest.main(["--collect-only", "-q", *arguments] if options.list else arguments, plugins=[Selection(tests)])


if __name__ == "__main__":
    sys.exit(main())
