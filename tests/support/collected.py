"""The tests that pytest collects, and which of them only the long run runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLLECT_SECONDS_MAX = 240
_MARK = "collected="
COLLECTED = pytest.StashKey[list["Collected"]]()
"""All collected tests of this session, before deselection."""


@dataclass(frozen=True, slots=True)
class Collected:
    """One collected test: a function with its parameters."""

    id: str
    name: str
    """File and function, as in docs/guarantees.md."""
    heavy: bool
    skipped: bool
    """Whether it is always skipped."""


def describe(items: Iterable[pytest.Item]) -> list[Collected]:
    """Return descriptions of collected tests."""
    return [
        Collected(
            item.nodeid,
            f"{item.path.relative_to(ROOT)}::{getattr(item, 'originalname', item.name)}",
            item.get_closest_marker("heavy") is not None,
            item.get_closest_marker("skip") is not None,
        )
        for item in items
        if item.path.is_relative_to(ROOT)
    ]


def collect(files: Collection[str]) -> list[Collected]:
    """Return the tests that pytest collects from these files, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qs", "-p", __name__, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COLLECT_SECONDS_MAX, cwd=ROOT)
    if done.returncode != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest collects nothing, status {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    return [Collected(**each) for line in lines for each in json.loads(line)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the collected tests, where this module is loaded as a plugin."""
    print(_MARK + json.dumps([asdict(one) for one in session.config.stash[COLLECTED]]))
