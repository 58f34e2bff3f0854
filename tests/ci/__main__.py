"""Run heavy tests: CI's list and the share of this run, or those that are asked for."""

import argparse
import sys
import time

import pytest

from tests.ci.selection import SECONDS_MAX, SHARES, share_of_run

NIGHT_SECONDS_MAX = 86_400


def main() -> int:
    """Run or show the tests, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show what would run, and run nothing")
    parser.add_argument("--all", action="store_true", help="run all heavy tests, however long it takes")
    parser.add_argument("--share", type=int, action="append", choices=range(SHARES), help="run this share alone")
    parser.add_argument("--measure", action="store_true", help="write the durations of what has passed into tests.toml")
    options = parser.parse_args()
    whole = options.all or options.share is not None
    shares = range(SHARES) if options.all else options.share or [share_of_run()]
    return pytest.main(
        [
            *("-m", "heavy", "-p", "tests.ci.plugin", "-o", f"faulthandler_timeout={SECONDS_MAX}", "--durations=0"),
            *(["--ci-list"] if options.share is None else []),
            *("--ci-shares", ",".join(map(str, shares))),
            *("--ci-end", str(time.time() + (NIGHT_SECONDS_MAX if whole else SECONDS_MAX))),
            *(["--ci-measure"] if options.measure else []),
            *(["-n", "0", "--collect-only", "-q"] if options.list else ["-n", "2", "--no-loadscope-reorder"]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
