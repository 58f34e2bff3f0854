"""On which line of a TOML text each key stands: `tomllib` gives the values and not their places.

The text is known to be TOML. Keys within inline tables have no line of their own: that of the table counts.
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
    """Give for each table and each key the first line, counted from 1, on which it stands."""
    found: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        if match := _TABLE.match(statement):
            table = _parts(match[1])
            found.setdefault(table, line)
        elif match := _KEY.match(statement):
            path = (*table, *_parts(match[1]))
            for length in range(len(table) + 1, len(path) + 1):
                found.setdefault(path[:length], line)
    return found


def line_at(lines: Mapping[Path, int], path: Path) -> int | None:
    """Give the line of a key, or of the innermost table around it that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Cut the text at the ends of lines that lie in no string, array or inline table."""
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
