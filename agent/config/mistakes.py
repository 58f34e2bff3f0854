"""Mistakes in a configuration, each with its place and the problem."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake."""

    file: str
    """The file's path, or `environment`."""
    line: int | None
    section: str
    """Empty where it concerns no known section."""
    key: str
    """Empty where it concerns no single key."""
    message: str
    """What is expected, or what to do; never a secret."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        words = [f"[{self.section}]"] if self.section else []
        words += [f"{self.key}:"] if self.key else []
        return f"{place}: {' '.join([*words, self.message])}"


class ConfigurationError(Exception):
    """The configuration is invalid: do not retry."""

    def __init__(self, *mistakes: Mistake) -> None:
        self.mistakes = sorted(mistakes, key=lambda mistake: (mistake.line is None, mistake.line or 0))
        """In the order of their lines; those without a line at the end."""
        super().__init__("\n".join(map(str, self.mistakes)))


class SettingErrors(ValueError):  # noqa: N818  # several
    """Several mistakes in one setting or section; each is an argument."""


def read_entries(value: object, read: Callable[[object], _Entry], expected: str) -> tuple[_Entry, ...]:
    """Read a list of tables; raise SettingErrors with the mistakes of all entries."""
    if not isinstance(value, list):
        raise ValueError(expected)
    entries, mistakes = [], []
    for number, table in enumerate(value, 1):
        try:
            entries.append(read(table))
        except ValueError as error:
            mistakes.append(f"entry {number}: {error}")
    if mistakes:
        raise SettingErrors(*mistakes)
    return tuple(entries)


def texts(error: ValueError) -> Sequence[str]:
    """Return the mistakes of a reader's error."""
    return error.args if isinstance(error, SettingErrors) else (str(error),)


def suggestion(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of a message about an unknown word: the nearest known one, or else all of them, or this text."""
    import difflib  # only a mistake needs it

    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(names)}" if otherwise is None else otherwise
