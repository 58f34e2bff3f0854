"""A mapping: the expressions of one format, and the entries of events that they make of a message."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from agent.mappings.plain import Evaluate, ExpressionError, Root, Work, is_true
from contract.values import Invalid

_IDENTIFYING: Final = ("each", "device", "type", "id", "boot", "time", "time_format", "data")
KEYS: Final = ("name", *_IDENTIFYING, "units", "ext", "skip")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
OWN_FORMATS: Final = frozenset({"json", "cbor", "senml-json", "senml-cbor"})
"""Names that no mapping may have."""
EXT_NAME: Final = "mapping"
"""The entry of `ext` that names the mapping."""
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.(\d{1,18}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,20}(?:\.\d{1,18})?", re.ASCII)
_DIGITS_MAX: Final = 20 + 18 + 3
"""Of such a number of seconds in milliseconds: it is rounded once, to whole ones."""

Entries = dict[str, object]
"""The entries of an event, by the names of an event's fields and `ext`."""


class MappingError(ValueError):
    """A mapping is wrong: its key and the reason, for people."""


class Unmapped(ValueError):  # noqa: N818  # the name states the problem
    """A message, or one event of it, is no event of this mapping."""


class EventMapping:
    """A compiled mapping; created by `read`."""

    def __init__(self, name: str, table: Mapping[str, object], source: Mapping[str, Evaluate]) -> None:
        self.name = name
        self.table = table
        """The mapping as it was written."""
        self._each = source.get("each")
        self._skip = source.get("skip")
        checks = {**_CHECKS, "time": _TIMES[str(table.get("time_format", "ms"))]}
        self._fields = [(key, source[key], check) for key, check in checks.items() if key in source]
        self._units = table.get("units")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventMapping) and self.table == other.table

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def identifies(self) -> bool:
        """Whether its events have an id or a time, without which no duplicate can be recognised."""
        return "id" in self.table or "time" in self.table

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides about the fingerprints of its events."""
        return {key: self.table[key] for key in _IDENTIFYING if key in self.table}

    def apply(
        self, body: object, topic: Sequence[str], headers: Mapping[str, str], events_max: int
    ) -> tuple[Sequence[Entries | Invalid], int]:
        """Return the entries of a message's events, or a reason against one, and the number of skipped elements.

        Raise Unmapped where there can be no event.
        """
        root: dict[str, object] = {"body": body, "topic": topic, "headers": headers}
        work = Work()
        items: Sequence[object] = (None,)
        if self._each is not None:
            found = self._value("each", self._each, root, work)
            if not isinstance(found, list):
                raise Unmapped(self._reason("each", "yields no array"))
            if len(found) > events_max:
                raise Unmapped(self._reason("each", f"more than {events_max} elements"))
            items = found
        events: list[Entries | Invalid] = []
        skipped = 0 if items else 1
        for item in items:
            if self._each is not None:
                root["item"] = item
            try:
                if self._skip is not None and is_true(self._value("skip", self._skip, root, work)):
                    skipped += 1
                else:
                    events.append(self._entries(root, work))
            except Unmapped as error:
                events.append(Invalid(str(error)))
        return events, skipped

    def _entries(self, root: Root, work: Work) -> Entries:
        entries: Entries = {}
        for key, evaluate, check in self._fields:
            try:
                value = evaluate(root, work)
                if value is not None:
                    entries[key] = check(value)
            except ValueError as error:
                raise Unmapped(self._reason(key, str(error))) from None
        for key in ("device", "data"):
            if not entries.get(key):
                raise Unmapped(self._reason(key, "yields nothing"))
        if self._units is not None:
            entries["units"] = dict(self._units) if isinstance(self._units, dict) else self._units
        ext = entries.get("ext")
        entries["ext"] = {EXT_NAME: self.name, **(ext if isinstance(ext, dict) else {})}
        return entries

    def _value(self, key: str, evaluate: Evaluate, root: Root, work: Work) -> object:
        try:
            return evaluate(root, work)
        except ExpressionError as error:
            raise Unmapped(self._reason(key, str(error))) from None

    def _reason(self, key: str, reason: str) -> str:
        written = self.table.get(key)
        shown = f" = {written!r}" if isinstance(written, str) else ""
        return f"mapping {self.name}: {key}{shown}: {reason}"


def read(table: object) -> EventMapping:
    """Read one of [[mappings]]; raise MappingError with the key and what is expected."""
    if not isinstance(table, dict):
        raise MappingError("expected a table")
    if unknown := [key for key in table if key not in KEYS]:
        raise MappingError(f"unknown key {unknown[0]!r}; expected are {', '.join(KEYS)}")
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in OWN_FORMATS:
        raise MappingError("name: expected lower-case letters, digits, dots, hyphens and underscores, 64 at most")
    if missing := [key for key in ("device", "data") if key not in table]:
        raise MappingError(f"{name}: {missing[0]}: expected, since each event has one")
    if table.get("time_format", "ms") not in _TIMES:
        raise MappingError(f"{name}: time_format: expected one of {', '.join(_TIMES)}")
    if "time_format" in table and "time" not in table:
        raise MappingError(f"{name}: time_format: expected only with time")
    units = table.get("units", {})
    if not isinstance(units, dict) or not all(isinstance(unit, str) for unit in units.values()):
        raise MappingError(f"{name}: units: expected a table of names and units")
    return EventMapping(name, table, {key: _compile(name, key, table[key]) for key in _COMPILERS if key in table})


def _compile(name: str, key: str, written: object) -> Evaluate:
    try:
        return _COMPILERS[key](written)
    except ExpressionError as error:
        raise MappingError(f"{name}: {key}: {error}") from None


def _expression(written: object) -> Evaluate:
    if not isinstance(written, str):
        raise ExpressionError("expected an expression, as text")
    from agent.mappings.expressions import compiled  # with jmespath, which most gateways need not

    return compiled(written)


def _template(written: object) -> Evaluate:
    """Compile a text with expressions, which yields nothing where one of them does."""
    if not isinstance(written, str) or not written:
        raise ExpressionError("expected text, with expressions in braces")
    from agent.mappings.expressions import pieces  # with jmespath, which most gateways need not

    parts = pieces(written)

    def evaluate(root: Root, work: Work) -> object:
        found: list[str] = []
        for part in parts:
            value = part if isinstance(part, str) else part(root, work)
            if value is None:
                return None
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise ExpressionError(f"{written!r}: expected text or a number in braces")
            is_whole = isinstance(value, float) and value.is_integer()
            found.append(str(int(value) if is_whole else value))
        return "".join(found)

    return evaluate


def _device(written: object) -> Evaluate:
    evaluate = _template(written)
    if not str(written).startswith("urn:dev:mac:"):
        return evaluate

    def in_lower_case(root: Root, work: Work) -> object:
        found = evaluate(root, work)
        return found.lower() if isinstance(found, str) else found

    return in_lower_case


def _map(written: object) -> Evaluate:
    """Compile a table of names with an expression each, or one expression that yields an object."""
    if not isinstance(written, dict):
        return _expression(written)
    fields = [(name, _expression(text)) for name, text in written.items()]

    def evaluate(root: Root, work: Work) -> object:
        return {name: value for name, expression in fields if (value := expression(root, work)) is not None}

    return evaluate


_COMPILERS: Final[Mapping[str, Callable[[object], Evaluate]]] = {
    "each": _expression,
    "skip": _expression,
    "device": _device,
    "type": _template,
    "id": _expression,
    "boot": _expression,
    "time": _expression,
    "data": _map,
    "ext": _map,
}


def _check(kinds: Any, problem: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(problem)
        return value

    return check


_CHECKS: Final[Mapping[str, Callable[[object], object]]] = {
    **dict.fromkeys(("device", "type"), _check(str, "yields no text")),
    **dict.fromkeys(("id", "boot"), _check((str, int, float), "yields neither an integer nor text")),
    **dict.fromkeys(("data", "ext"), _check(dict, "yields no object")),
}


def _moment(unit_ms: int, value: object) -> int:
    """Return a number of units, perhaps written as text, in milliseconds."""
    from decimal import Context, Decimal  # each gateway imports this module, and few have mappings

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("yields no number")
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("yields no number")
    number = Decimal(value if isinstance(value, str | int) else repr(value))
    moment = Context(prec=_DIGITS_MAX).multiply(number, unit_ms)
    if not moment.is_finite() or abs(moment) >= 10**15:
        raise ValueError("yields no time in the years 1 to 9999")
    return int(moment.to_integral_value())


def _rfc3339(value: object) -> int:
    from decimal import Decimal  # as above

    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("yields no time of RFC 3339, such as 2026-01-01T00:00:00Z")
    fraction, zone = match.groups()
    moment = datetime.fromisoformat(match.string[:_SECONDS_END] + zone.upper())
    return int(moment.timestamp()) * 1000 + round(Decimal(f"0.{fraction or 0}") * 1000)


_SECONDS_END: Final = len("2026-01-01T00:00:00")
_TIMES: Final[Mapping[str, Callable[[object], int]]] = {
    "ms": partial(_moment, 1),
    "s": partial(_moment, 1000),
    "rfc3339": _rfc3339,
}
