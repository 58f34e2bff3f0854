"""Finds the line of each key in a TOML text, since `tomllib` returns values without places.

The text must be valid TOML. Keys within inline tables have the line of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

Path = tuple[str, ...]
"""Tables and key, from the outermost on."""

_PART = r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'"""
_DOTTED = rf"(?:{_PART})(?:\s*\.\s*(?:{_PART}))*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]|[^"'#\[\]{}\n]+''',
    re.DOTALL,
)


def lines_of(text: str) -> Mapping[Path, int]:
    """Return for each table and each key its first line, counted from 1."""
    found: dict[Path, int] = {}
    for line, _, table, key in _named(text):
        for length in range(len(table) + bool(key), len(table) + len(key) + 1):
            found.setdefault((*table, *key)[:length], line)
    return found


def first_repeated(text: str) -> tuple[str, int, int] | None:
    """Return the first table or key that occurs twice, with both lines; the text need not be valid TOML otherwise."""
    seen: dict[Path, int] = {}
    entry: Path = ()
    for line, statement, table, key in _named(text):
        if not key:
            entry = (f"\0{line}",) if statement.lstrip().startswith("[[") else ()  # each entry has keys of its own
        path = (*table, *entry, *key)
        if path in seen:
            return path[-1], seen[path], line
        seen[path] = line
    return None


def line_at(lines: Mapping[Path, int], path: Path) -> int | None:
    """Return the line of a key, or of the innermost table around it that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _named(text: str) -> Iterator[tuple[int, str, Path, Path]]:
    """Yield line and text of each head of a table, with the table, and of each key, with its table and itself."""
    table: Path = ()
    for line, statement in _statements(text):
        if match := _TABLE.match(statement):
            table = _parts(match[1])
            yield line, statement, table, ()
        elif match := _KEY.match(statement):
            yield line, statement, table, _parts(match[1])


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements with their first lines: cut at line ends outside strings, arrays and inline tables."""
    line, start, depth, statement = 1, 1, 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n" and depth <= 0:
            yield start, statement
            line += 1
            start, depth, statement = line, 0, ""
            continue
        depth += (token in "[{") - (token in "]}") if len(token) == 1 else 0
        line += token.count("\n")
        statement += token
    yield start, statement


def _parts(dotted: str) -> Path:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, dotted))
