"""Which heavy tests run in which turn: all of them in as few turns as the time allows."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

TURN_SECONDS_MAX = 1_500
"""What CI has left after `make test`, with a third of it in reserve."""
SETUP_SECONDS = 180
"""What a turn takes besides its tests: collecting, and the starts of Kafka, Spark and PostgreSQL."""
UNKNOWN_SECONDS = 180
"""Of a test that nobody has measured."""
SECONDS_FILE = Path(__file__).with_name("seconds.toml")


def read_seconds() -> dict[str, int]:
    """Return the measured seconds: of a test by its id, or of each of a function by file and function."""
    return dict(tomllib.loads(SECONDS_FILE.read_text())["seconds"])


def estimate(test: str, seconds: Mapping[str, int]) -> int:
    """Return how long a test takes on two slow cores."""
    return seconds.get(test, seconds.get(test.partition("[")[0], UNKNOWN_SECONDS))


def turns(costs: Mapping[str, int]) -> list[list[str]]:
    """Divide the tests into turns, longest first, each into the first turn that has room for it."""
    room = TURN_SECONDS_MAX - SETUP_SECONDS
    made: list[list[str]] = []
    left: list[int] = []
    for test in sorted(costs, key=lambda test: (-costs[test], test)):
        if costs[test] > room:
            raise ValueError(f"{test} takes {costs[test]} s, a turn has {room} s")
        place = next((number for number, free in enumerate(left) if free >= costs[test]), len(made))
        if place == len(made):
            made.append([])
            left.append(room)
        made[place].append(test)
        left[place] -= costs[test]
    return made


def turn_of(number: int, costs: Mapping[str, int]) -> list[str]:
    """Return the tests of one turn, those of a file together.

    Another one is the first in each round: where a slow machine has no time for the last, it is not always the same.
    """
    if not costs:
        return []
    all_turns = turns(costs)
    tests = sorted(all_turns[number % len(all_turns)])
    first = number // len(all_turns) % len(tests)
    return tests[first:] + tests[:first]
