"""The suite: the configurations of the specifications, and the mutants that must break them (mutants.toml)."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MUTANTS_FILE = FOLDER / "mutants.toml"
GUARANTEES = FOLDER.parent / "docs" / "guarantees.md"
LARGE = "large"
"""The name of a configuration for the long run."""
MUTANTS_MIN = 2
"""How many mutants must break each invariant."""
_SECTION = re.compile(r"^(INVARIANTS?|PROPERT(?:Y|IES))\s+((?:(?!CONSTANTS?\b)\w+\s+)+)", re.MULTILINE)


class SuiteError(Exception):
    """The suite contradicts itself."""


@dataclass(frozen=True)
class Configuration:
    """A configuration of a specification: FOLDER/<specification>/<name>.cfg."""

    path: Path

    def __str__(self) -> str:
        """Return `<specification>/<name>`."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def specification(self) -> Path:
        """The specification that it configures."""
        return self.path.parent / f"{self.path.parent.name}.tla"

    @property
    def is_large(self) -> bool:
        """Whether it is for the long run."""
        return self.path.stem.startswith(LARGE)

    @cached_property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that it checks."""
        return tuple(self._names("INVARIANT"))

    @cached_property
    def properties(self) -> tuple[str, ...]:
        """The temporal properties that it checks."""
        return tuple(self._names("PROPERT"))

    def _names(self, keyword: str) -> Iterator[str]:
        for found, names in _SECTION.findall(self.path.read_text()):
            if found.startswith(keyword):
                yield from names.split()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a specification, and the invariant that it must break before any other."""

    name: str
    breaks: str
    configuration: Configuration
    replace: Sequence[Sequence[str]]
    """Pairs of a text that occurs once in the specification, and its replacement."""

    def apply(self, specification: str) -> str:
        """Return the changed specification; raise SuiteError where a text does not occur in it once."""
        for old, new in self.replace:
            if (count := specification.count(old)) != 1:
                raise SuiteError(f"mutant {self.name}: {old!r} occurs {count} times in the specification")
            specification = specification.replace(old, new)
        return specification


def configurations() -> list[Configuration]:
    """Return all configurations, sorted by name."""
    return [Configuration(path) for path in sorted(FOLDER.glob("*/*.cfg"))]


def configuration(name: str) -> Configuration:
    """Return the configuration of a name; raise SuiteError where there is none."""
    found = Configuration(FOLDER / f"{name}.cfg")
    if not found.path.is_file():
        raise SuiteError(f"there is no configuration {name}: {', '.join(map(str, configurations()))}")
    return found


def mutants(file: Path = MUTANTS_FILE) -> list[Mutant]:
    """Return the mutants in the order of their file."""
    tables: Mapping[str, Mapping[str, object]] = tomllib.loads(file.read_text())
    return [_mutant(name, table) for name, table in tables.items()]


def objections(configured: Sequence[Configuration], table: Sequence[Mutant], guarantees: str) -> list[str]:
    """Return what is missing: mutants of an invariant, its name on the page of guarantees, a check of a mutant."""
    names = {name for one in configured for name in (*one.invariants, *one.properties)}
    count = Counter(mutant.breaks for mutant in table)
    few = [f"{name}: {count[name]} mutants, {MUTANTS_MIN} are needed" for name in sorted(names) if count[name] < 2]
    unnamed = [f"{name}: is not in {GUARANTEES.name}" for name in sorted(names) if f"`{name}`" not in guarantees]
    unchecked = [
        f"mutant {mutant.name}: {mutant.configuration} does not check {mutant.breaks}"
        for mutant in table
        if mutant.breaks not in (*mutant.configuration.invariants, *mutant.configuration.properties)
    ]
    return [*few, *unnamed, *unchecked]


def _mutant(name: str, table: Mapping[str, object]) -> Mutant:
    match table:
        case {"breaks": str(breaks), "configuration": str(configured), "replace": list(replace), **rest} if not rest:
            return Mutant(name, breaks, configuration(configured), replace)
    raise SuiteError(f"mutant {name}: expected are breaks, configuration and replace, found {', '.join(table)}")
