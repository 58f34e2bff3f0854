"""Read TOML into frozen dataclasses, strictly: an unknown key or a wrong type is an error that names its place.

A field's type defines the accepted values: text, integers, numbers, booleans, lists of text, another dataclass (a
table) or a tuple of dataclasses (an array of tables). A field without a default is required.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from simulators.errors import SimulatorError

T = TypeVar("T")


class TomlError(SimulatorError):
    """A file cannot be read; the message names the file, the key, and the expected value."""


def load(path: Path, schema: type[T]) -> T:
    """Read a file; raise TomlError where it cannot be read or does not fit the schema."""
    try:
        return parse(path.read_text(), schema, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TomlError(f"{path}: {error}") from error


def parse(text: str, schema: type[T], source: str) -> T:
    """Read a text; error messages name its `source`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"{source}: {error}") from error
    return _table(table, schema, source, "")


def _table(table: Mapping[str, object], schema: type[T], source: str, place: str) -> T:
    hints = get_type_hints(schema)
    known = {field.name: field for field in fields(cast(Any, schema))}
    for key in table:
        if key not in known:
            raise TomlError(f"{source}: unknown key {_key(place, key)!r}; {_nearest(key, list(known))}")
    values: dict[str, object] = {}
    for name, field in known.items():
        if name in table:
            values[name] = _value(table[name], hints[name], source, _key(place, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise TomlError(f"{source}: {_key(place, name)!r} is missing")
    try:
        return schema(**values)
    except ValueError as error:
        raise TomlError(f"{source}: {place or 'the file'}: {error}") from error


def _value(value: object, expected: Any, source: str, place: str) -> object:
    if is_dataclass(expected) and isinstance(value, dict):
        return _table(value, cast(type[Any], expected), source, place)
    if get_origin(expected) is tuple and isinstance(value, list):
        (item, _) = get_args(expected)
        return tuple(_value(one, item, source, f"{place}[{number}]") for number, one in enumerate(value, start=1))
    if isinstance(expected, type) and issubclass(expected, Enum) and isinstance(value, str):
        choices = [str(one.value) for one in expected]
        if value not in choices:
            raise TomlError(f"{source}: {place!r} is {value!r}; {_nearest(value, choices)}")
        return expected(value)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(expected, type) and type(value) is expected:
        return value
    raise TomlError(f"{source}: {place!r} is {value!r}; expected {_described(expected)}")


def _described(expected: Any) -> str:
    if get_origin(expected) is tuple:
        return f"a list of {_described(get_args(expected)[0])}"
    names = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(expected, "a table")


def _nearest(word: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(sorted(choices))}"


def _key(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
