"""Finds the line of each key in a TOML text, since `tomllib` returns values without places.

It reads one statement after the other. Keys within inline tables have the line of the table.
"""

from collections.abc import Iterator, Mapping

from agent.config.files import parse_toml

Path = tuple[str, ...]
"""Tables and key, from the outermost on."""

_ENDS = ("]", '"""', "'''")
"""What can end a statement of several lines: a list or a text, also within an inline table."""


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
    within = (path[:length] for length in range(len(path), 0, -1))
    return next((lines[one] for one in within if one in lines), None)


def _named(text: str) -> Iterator[tuple[int, str, Path, Path]]:
    """Yield line and text of each head of a table, with the table, and of each key, with its table and itself."""
    table: Path = ()
    statement, start = "", 1
    for line, written in enumerate(text.split("\n"), 1):
        statement += f"{written}\n"
        if line > start and not any(end in written for end in _ENDS):  # else a list is tried as often as it has lines
            continue
        try:
            path = _path(parse_toml(statement))
        except ValueError:  # it goes on in the next line
            continue
        if statement.lstrip().startswith("["):
            table = path
            yield start, statement, table, ()
        elif path:
            yield start, statement, table, path
        statement, start = "", line + 1


def _path(value: object) -> Path:
    """Return the path of names that a statement sets, as far as it is a single one."""
    names: list[str] = []
    while isinstance(value, dict | list) and len(value) == 1:
        if isinstance(value, dict):
            names += value
        (value,) = value.values() if isinstance(value, dict) else value
    return tuple(names)
