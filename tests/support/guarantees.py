"""The tests that docs/guarantees.md names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

GUARANTEES = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"
LONG_RUN = " (long run)"
_TEST = re.compile(rf"`(tests/[\w/]+\.py::\w+)`({re.escape(LONG_RUN)})?")


@dataclass(frozen=True, slots=True)
class Named:
    """A named test: file and function, and whether the page marks it as part of the long run."""

    name: str
    long: bool


def named(text: str) -> list[Named]:
    """Return the tests that a text names."""
    return [Named(name, bool(long)) for name, long in _TEST.findall(text)]


def read_named() -> list[Named]:
    """Return the tests that the page names."""
    return named(GUARANTEES.read_text())
