"""Run heavy tests: CI's list and the share of this commit, or those that are asked for."""

from __future__ import annotations

import argparse
import sys

import pytest

from tests.ci.selection import SECONDS_MAX, SHARES, TESTS_FILE, Selection, read_tests, share_of_commit

NIGHT_SECONDS_MAX = 86_400


def main() -> int:
    """Run or show the tests, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show what would run, and run nothing")
    parser.add_argument("--all", action="store_true", help="run all heavy tests, however long it takes")
    parser.add_argument("--share", type=int, action="append", choices=range(SHARES + 1), help="run this share alone")
    parser.add_argument("--measure", action="store_true", help="write the durations of what has passed into tests.toml")
    options = parser.parse_args()
    whole = options.all or options.share is not None
    selection = Selection(
        read_tests(),
        lists=options.share is None,
        shares=range(SHARES + 1) if options.all else options.share or [share_of_commit()],
        seconds_max=NIGHT_SECONDS_MAX if whole else SECONDS_MAX,
    )
    arguments = ["-m", "heavy", "-n", "0", "-o", f"faulthandler_timeout={SECONDS_MAX}"]
    status = pytest.main([*arguments, *(["--collect-only", "-q"] if options.list else [])], plugins=[selection])
    if options.measure:
        measured = {name: max(1, round(sum(each) / len(each))) for name, each in selection.durations.items()}
        write_seconds({**read_tests().seconds, **measured})
    return status


def write_seconds(seconds: dict[str, float]) -> None:
    """Replace the durations in tests.toml."""
    head = TESTS_FILE.read_text().partition("[seconds]\n")[0]
    TESTS_FILE.write_text(
        head + "[seconds]\n" + "".join(f'"{name}" = {value:g}\n' for name, value in sorted(seconds.items()))
    )


if __name__ == "__main__":
    sys.exit(main())
