"""Makes an event of a map with its fields, and of a query: the checks that all formats share."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final, cast

from agent.decode.decoded import InvalidEvent, Undecodable
from contract.cbor import INTEGER_END, INTEGER_MIN
from contract.event import DEVICE_RESERVED_PREFIX, TIME_MAX, TIME_MIN, TYPE_DEFAULT, TYPE_RESERVED_PREFIX, Event, Value
from contract.values import NFC_SHRINK_MAX, VALUES_MAX, Invalid, InvalidValue, check_data, check_text

FIELDS: Final = frozenset({"device", "type", "id", "boot", "time", "data", "units"})
_FIELDS_AND_EXT: Final = FIELDS | {"ext"}
DEVICE_CHARACTERS_MAX: Final = 256
TYPE_CHARACTERS_MAX: Final = 64
ID_CHARACTERS_MAX: Final = 256
"""Of an id or a boot that is text."""
UNIT_CHARACTERS_MAX: Final = 64
_NAMES_CACHED_MAX: Final = 4096
_CACHED_CHARACTERS_MAX: Final = DEVICE_CHARACTERS_MAX + 1
"""How many names are cached as checked, and how long they may be. Sender and query are checked for each event of a
body; transports cut a sender's name to one character more than a device may have."""

Parameters = Mapping[str, int | str]
"""The fields that the query sets in a body's events."""
NO_PARAMETERS: Final[Parameters] = {}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def to_event(
    entries: object, query: Parameters, fallback: str, offset_ms: int | None = None, may_have_ext: bool = False
) -> Event:
    """Return the event of a map and the query; `fallback` is the device where neither names one.

    Only what reads other programs' messages may give `ext`. Raise InvalidEvent where a field is invalid, unknown, or
    differs between map and query.
    """
    if type(entries) is not dict:
        raise InvalidEvent(entries.reason if isinstance(entries, Invalid) else "an event is not a map")
    if not entries.keys() <= (_FIELDS_AND_EXT if may_have_ext else FIELDS):
        raise InvalidEvent(_unknown_field(entries))
    if query:
        entries = _merged(entries, query)
    get = entries.get
    device = _text("device", get("device"), DEVICE_CHARACTERS_MAX)
    type_ = _text("type", get("type"), TYPE_CHARACTERS_MAX)
    id_ = _number_or_text("id", get("id"))
    boot = _number_or_text("boot", get("boot"))
    time = _time(get("time"))
    if device is None:
        device = _name("device", fallback, DEVICE_CHARACTERS_MAX)
    data, units, ext = _data(get("data")), _units(get("units")), _ext(get("ext"))
    return Event(device, type_ or TYPE_DEFAULT, id_, boot, time, data, units, offset_ms, ext)


def check_not_reserved(event: Event) -> None:
    """Raise InvalidEvent where an event from outside has a type or a device that is reserved for gateways."""
    if event.type.startswith(TYPE_RESERVED_PREFIX):
        raise InvalidEvent(f"types {TYPE_RESERVED_PREFIX}* are the gateway's own")
    if event.device[: len(DEVICE_RESERVED_PREFIX)].lower() == DEVICE_RESERVED_PREFIX:  # RFC 8141: urn: has no case
        raise InvalidEvent(f"devices {DEVICE_RESERVED_PREFIX}* are the gateways themselves")


def device_name(text: str) -> str:
    """Return a device's name in NFC, as in its events; raise InvalidEvent where it is no valid name."""
    return _name("device", text, DEVICE_CHARACTERS_MAX)


def claimed_device(entries: object, query: Parameters, fallback: str) -> str:
    """Return the device that a rejected event names, or the query, or else the fallback."""
    claims = (entries.get("device") if isinstance(entries, dict) else None, query.get("device"))
    for claim in claims:
        try:
            if (device := _text("device", claim, DEVICE_CHARACTERS_MAX)) is not None:
                return device
        except InvalidEvent:
            continue
    return fallback


def _unknown_field(entries: dict[object, object]) -> str:
    unknown = next(name for name in entries if name not in FIELDS)
    return f"unknown field {unknown[:TYPE_CHARACTERS_MAX]!a}" if isinstance(unknown, str) else "a key is not text"


def _text(field: str, value: object, characters_max: int) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidEvent(f"{field}: {value.reason}" if isinstance(value, Invalid) else f"{field} is not text")
    return _name(field, value, characters_max)


def _name(field: str, text: str, characters_max: int) -> str:
    """Return the text in NFC, as the fingerprint has it; raise InvalidEvent where it is no valid name."""
    if not 0 < len(text) <= NFC_SHRINK_MAX * characters_max:  # NFC would not make it short enough (decision 32)
        raise InvalidEvent(_wrong_length(field, characters_max))
    read = _read_name_cached if len(text) <= _CACHED_CHARACTERS_MAX else _read_name
    name = read(field, text, characters_max)
    if isinstance(name, Invalid):
        raise InvalidEvent(name.reason)
    return name


def _read_name(field: str, text: str, characters_max: int) -> str | Invalid:
    try:
        check_text(text)
    except InvalidValue as error:
        return Invalid(f"{field}: {error}")
    text = unicodedata.normalize("NFC", text)
    if len(text) > characters_max:
        return Invalid(_wrong_length(field, characters_max))
    if _CONTROL.search(text):
        return Invalid(f"{field} holds a control character")
    return text


_read_name_cached: Final = lru_cache(maxsize=_NAMES_CACHED_MAX)(_read_name)
"""Devices and types recur, and so does an invalid one for all events of a body."""


def _wrong_length(field: str, characters_max: int) -> str:
    return f"{field} is empty or longer than {characters_max} characters"


def _number_or_text(field: str, value: object) -> int | str | None:
    if value is None:
        return None
    if type(value) is str:
        return _name(field, value, ID_CHARACTERS_MAX)
    number = _integer(field, value, "an integer or text")
    # An integer just below -2^63 in JSON is read as the double -2^63: two ids would be one.
    if not INTEGER_MIN <= number < INTEGER_END or (number == INTEGER_MIN and type(value) is float):
        raise InvalidEvent(f"{field} is outside [-2^63, 2^64)")
    return number


def _time(value: object) -> int | None:
    if value is None:
        return None
    time = _integer("time", value, "integer milliseconds")
    if not TIME_MIN <= time <= TIME_MAX:
        raise InvalidEvent("time is outside the years 1 to 9999")
    return time


def _integer(field: str, value: object, expected: str) -> int:
    """Return an integer; an integral float counts as one."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise InvalidEvent(f"{field}: {value.reason}" if isinstance(value, Invalid) else f"{field} is not {expected}")


def _merged(entries: dict[object, object], query: Parameters) -> dict[object, object]:
    """Return the entries with those of the query; raise InvalidEvent where both have another value of a field."""
    for name, value in query.items():
        own, read = entries.get(name), _READERS[name]
        if own is not None and read(own) != read(value):
            raise InvalidEvent(f"{name} differs between body and query")
    return entries | dict(query)


_READERS: Final[Mapping[str, Callable[[object], object]]] = {
    "device": lambda value: _text("device", value, DEVICE_CHARACTERS_MAX),
    "type": lambda value: _text("type", value, TYPE_CHARACTERS_MAX),
    "id": partial(_number_or_text, "id"),
    "boot": partial(_number_or_text, "boot"),
    "time": _time,
}


def _data(value: object) -> Mapping[str, Value] | None:
    if value is None:
        return None
    try:
        check_data(value)
    except InvalidValue as error:
        raise InvalidEvent(f"data: {error}") from None
    return cast("Mapping[str, Value]", value)


def _units(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if type(value) is not dict or len(value) > VALUES_MAX:
        raise InvalidEvent(f"units are not a map of at most {VALUES_MAX} entries")
    units: dict[str, str] = {}
    for name, unit in value.items():
        if unit is None:
            continue
        if type(name) is not str or type(unit) is not str or len(unit) > UNIT_CHARACTERS_MAX:
            raise InvalidEvent(f"a unit is not text of at most {UNIT_CHARACTERS_MAX} characters")
        try:
            check_text(name)
            check_text(unit)
        except InvalidValue as error:
            raise InvalidEvent(f"units: {error}") from None
        units[name] = unit
    return units


def _ext(value: object) -> Mapping[str, Value] | None:
    """Return the entries of `ext` that are valid data: what is known beside the event never refuses it."""
    if type(value) is not dict:
        return None
    valid: dict[object, object] = {}
    for name, one in value.items():
        try:
            check_data({name: one})
            valid[name] = one
        except InvalidValue:
            continue
    return cast("Mapping[str, Value]", valid) or None


PARAMETER_CHARACTERS_MAX: Final = 256


_PARAMETERS: Final = {"d": "device", "id": "id", "boot": "boot", "t": "time", "type": "type"}


def read_query(query: Mapping[str, str]) -> Parameters:
    """Read d, id, boot, t and type.

    Raise Undecodable on any other parameter: to pass over a misspelt one would lose an event's identity.
    """
    for name, value in query.items():
        if name not in _PARAMETERS:
            raise Undecodable(f"query: unknown parameter {name[:PARAMETER_CHARACTERS_MAX]!r}")
        if not 0 < len(value) <= PARAMETER_CHARACTERS_MAX:
            raise Undecodable(f"query: {name} is empty or longer than {PARAMETER_CHARACTERS_MAX} characters")
    return {
        _PARAMETERS[name]: value if name in ("d", "type") else number_or_text(value) for name, value in query.items()
    }


def number_or_text(text: str) -> int | str:
    """Read decimal digits without a leading zero as an integer."""
    is_number = text.isascii() and text.isdecimal() and (text[0] != "0" or text == "0")
    return int(text) if is_number else text
