"""The user's transform for rows as dicts: the laws of `table.transform`, without Spark."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from cloud.hooks import REJECT, REJECTED, Hook
from cloud.plain_consumer.records import Judged, without_nul
from cloud.table.layout import COLUMNS, STAGED

Row = dict[Any, Any]
_Place = tuple[int, int]

_REASON, _PARTITION, _OFFSET = map(list(STAGED).index, ("reason", "kafka_partition", "kafka_offset"))
_INTEGER, _DOUBLE, _NUMERIC, _TEXT = "bigint", "double precision", "numeric", "text"
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: _INTEGER,
    float: _DOUBLE,
    Decimal: _NUMERIC,
    str: _TEXT,
    bytes: "bytea",
    date: "date",
    datetime: "timestamp with time zone",
}
"""PostgreSQL's type for a column of values of one kind."""
_TAKES: dict[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    _INTEGER: ((int,), int),
    "integer": ((int,), int),
    "smallint": ((int,), int),
    _DOUBLE: ((int, float), float),
    "real": ((int, float), float),
    _NUMERIC: ((int, float, Decimal), lambda value: Decimal(str(value))),
    _TEXT: ((str,), without_nul),
}
"""The kinds of values that a type takes, where it is not the one of _TYPES alone, and how they are converted."""
_LONG = 1 << 63
_LIMITS = {"smallint": 1 << 15, "integer": 1 << 31, "real": (1 << 128) - (1 << 103)}
"""From where on a number does not fit a type; COPY's binary form would take a part of it."""


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of `layout.STAGED`, with the transform's columns behind."""

    rows: list[tuple[Any, ...]]
    columns: tuple[str, ...] = ()
    rejected: int = 0

    def types(self, present: dict[str, str]) -> dict[str, str]:
        """Return the columns of the transform that have a value, with their types in PostgreSQL.

        A present column keeps its type where this takes the values; `widening.missing` refuses the others.
        """
        types: dict[str, str] = {}
        for at, name in enumerate(self.columns, len(STAGED)):
            values = [row[at] for row in self.rows if row[at] is not None]
            kinds = {type(value) for value in values}
            if (own := _type_of(kinds)) is not None:
                there = present.get(name, own)
                types[name] = there if kinds <= set(_takes(there)[0]) and _fit(there, values) else own
        return types

    def staged(self, types: dict[str, str]) -> list[tuple[Any, ...]]:
        """Return the rows with the columns that have a type."""
        chosen = [(len(STAGED) + self.columns.index(name), _takes(kind)[1]) for name, kind in types.items()]
        return [
            row[: len(STAGED)] + tuple(None if row[at] is None else convert(row[at]) for at, convert in chosen)
            for row in self.rows
        ]


def untransformed(judged: Sequence[Judged]) -> Made:
    """Return the rows as they are."""
    return Made([one.row for one in judged])


class DictTransform:
    """Calls the user's function once for each batch."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        hook.check()

    def __call__(self, judged: Sequence[Judged]) -> Made:
        """Return what becomes of the rows.

        Raise StopError where it is not the same rows, HookError for an error of the function.
        """
        good = {_place(one.row): one.row for one in judged if one.row[_REASON] is None}
        if not good:
            return untransformed(judged)
        with self._hook.called() as call:
            returned = call([dict(zip(COLUMNS, row, strict=False)) for row in good.values()])
            added = self._checked(returned, good)
        columns = tuple(dict.fromkeys(name for own in added.values() for name in own if name != REJECT))
        rows, rejected = [], 0
        for one in judged:
            row = one.row
            own = added.get(_place(row), {}) if row[_REASON] is None else {}
            if (reject := own.get(REJECT)) is not None:
                rejected += 1
                row = (*row[:_REASON], REJECTED + without_nul(reject), *row[_REASON + 1 :])
            rows.append((*row, *map(own.get, columns)))
        return Made(rows, columns, rejected)

    def _checked(self, returned: object, good: Mapping[_Place, Sequence[object]]) -> dict[_Place, Row]:
        """Return the transform's columns of each row."""
        if not isinstance(returned, list) or not all(isinstance(row, dict) for row in returned):
            raise self._hook.broken(f"it returns {type(returned).__name__}, not a list of dicts")
        for row in returned:
            if absent := COLUMNS.keys() - row.keys():
                raise self._hook.broken(f"it does not return the column {min(absent)}")
        places = [(row["kafka_partition"], row["kafka_offset"]) for row in returned]
        times = Counter(places)
        counts = {
            "lost": len(good.keys() - times.keys()),
            "doubled": sum(count - 1 for place, count in times.items() if place in good),
            "invented": sum(count for place, count in times.items() if place not in good),
            "changed": sum(_differs(row, good[p]) for p, row in zip(places, returned, strict=True) if p in good),
        }
        if any(counts.values()):
            raise self._hook.other_rows(len(good), counts)
        added = {p: {n: v for n, v in row.items() if n not in COLUMNS} for p, row in zip(places, returned, strict=True)}
        self._check_values(added.values())
        return added

    def _check_values(self, added: Iterable[Row]) -> None:
        """Raise StopError for what no column of PostgreSQL takes."""
        kinds: dict[str, set[type]] = {}
        for name, value in (entry for own in added for entry in own.items()):
            if not isinstance(name, str) or not name:
                raise self._hook.broken(f"its column {name!r} has no name")
            if isinstance(value, int) and not -_LONG <= value < _LONG:
                raise self._hook.broken(f"its column {name} has a number of more than 64 bits: make a text of it")
            if isinstance(value, datetime) and value.tzinfo is None:
                raise self._hook.broken(f"its column {name} has a time without a zone")
            if value is not None:
                kinds.setdefault(name, set()).add(type(value))
        for name, found in kinds.items():
            if _type_of(found) is None or (name == REJECT and found != {str}):
                named = " and ".join(sorted(kind.__name__ for kind in found))
                raise self._hook.broken(f"its column {name} has values of the type {named}: make texts of them")


def _type_of(kinds: set[type]) -> str | None:
    """Return the type of a column with values of these kinds; None where there is none."""
    if len(kinds) == 1:
        return _TYPES.get(next(iter(kinds)))
    return {frozenset({int, float}): _DOUBLE, frozenset({int, Decimal}): _NUMERIC}.get(frozenset(kinds))


def _takes(type_: str) -> tuple[tuple[type, ...], Callable[[Any], Any]]:
    alone = tuple(kind for kind, of in _TYPES.items() if of == type_)
    return _TAKES.get(type_.partition("(")[0], (alone, lambda value: value))


def _fit(type_: str, values: Iterable[Any]) -> bool:
    limit = _LIMITS.get(type_)
    return limit is None or all(not isfinite(value) or -limit <= value < limit for value in values)


def _place(row: Sequence[Any]) -> _Place:
    return row[_PARTITION], row[_OFFSET]


def _differs(row: Row, given: Sequence[object]) -> bool:
    """Whether a row has another value than a given one, be it 1 in place of True."""
    return any(
        row[name] is not value and (row[name] != value or type(row[name]) is not type(value))
        for name, value in zip(COLUMNS, given, strict=False)
    )
