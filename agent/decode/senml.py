"""SenML packs (RFC 8428): records are resolved, and those of one base name and one time form one event."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from agent.decode.decoded import InvalidEvent, Undecodable
from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from contract.event import TIME_MAX, TIME_MIN
from contract.values import NFC_SHRINK_MAX, Invalid, InvalidValue, check_text, decode_base64url

RECORDS_MAX: Final = 512
"""Records in one pack. Each takes up to 40 microseconds, during which no other sensor is served."""
RELATIVE_END_MS: Final = (1 << 28) * 1000
"""Times below 2^28 seconds are relative to now (RFC 8428 section 4.5.3)."""
VERSION_MAX: Final = 10
"""The latest version that is understood (RFC 8428 section 4.4): a pack of a later one must not be used."""
VALUE_NAME_DEFAULT: Final = "value"
BASE_NAME_CHARACTERS_READ: Final = NFC_SHRINK_MAX * DEVICE_CHARACTERS_MAX + 2
"""Characters of a base name that are read: without its separator that is still too long for a device. Each record of
the pack is read under it."""
BASE_FIELDS: Final = frozenset({"bver", "bn", "bt", "bu", "bv", "bs"})

CBOR_LABELS: Final[Mapping[object, str]] = {
    -1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
"""RFC 8428 section 6."""
FIELDS: Final = frozenset(CBOR_LABELS.values())
_VALUE_FIELDS: Final[tuple[str, ...]] = ("v", "vs", "vb", "vd")

_SEPARATORS: Final = ":/"

Record = Mapping[object, object]


@dataclass(slots=True)
class Group:
    """The records that form one event."""

    device: str | None
    milliseconds: int | None
    timed: bool
    """Whether a record or its base has a time; without one they are of now."""
    data: dict[str, object] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    records: list[tuple[Record, Bases]] = field(default_factory=list)
    problem: str | None = None

    @property
    def offset_ms(self) -> int | None:
        """Return the time relative to now; None where it is absolute or absent."""
        relative = self.timed and self.milliseconds is not None and self.milliseconds < RELATIVE_END_MS
        return self.milliseconds if relative else None

    def entries(self) -> object:
        """Return the map of the event; `Invalid` where one of its records is invalid."""
        if self.problem is not None:
            return Invalid(self.problem)
        entries: dict[str, object] = {"device": self.device, "data": self.data, "units": self.units or None}
        if self.milliseconds is not None and self.milliseconds >= RELATIVE_END_MS:
            entries["time"] = self.milliseconds
        return entries

    def raw(self, bytes_max: int) -> bytes:
        """Return the records as readable JSON, each with the base name and the base time in force, cut to `bytes_max`.

        Each repeats the base name, which can be as long as the body: what would be cut off is not written at all.
        """
        parts: list[bytes] = []
        written = 0
        for record, bases in self.records:
            if written >= bytes_max:
                break
            readable = {str(label): _readable(value, bytes_max) for label, value in record.items()}
            readable |= {"bn": bases.name[:bytes_max], "bt": bases.time}
            parts.append((b"," if parts else b"[") + json.dumps(readable, separators=(",", ":")).encode())
            written += len(parts[-1])
        return b"".join([*parts, b"]"])[:bytes_max]


_Key = tuple[str, str | None, int]


def resolve(document: object, device_known: bool) -> list[Group]:
    """Resolve the records of a pack and group them into events, in the order of their first records.

    `device_known`: whether the sender or the query names the device; else it is a prefix of names without a base name.
    Raise Undecodable where the pack as a whole must not be used.
    """
    if not isinstance(document, list):
        raise Undecodable("SenML: a pack is not an array")
    if len(document) > RECORDS_MAX:
        raise Undecodable(f"SenML: the pack holds more than {RECORDS_MAX} records")
    bases = Bases()
    groups: list[Group] = []
    current: dict[_Key, Group] = {}
    for item in document:
        record = _read_record(item)
        bases = bases.after(record)
        if not record.keys() <= BASE_FIELDS:
            _add(groups, current, record, bases, device_known)
    return groups


def _add(groups: list[Group], current: dict[_Key, Group], record: Record, bases: Bases, device_known: bool) -> None:
    problem, name, milliseconds = None, "", None
    values: Mapping[str, object] = {}
    unit = None
    device = bases.device
    try:
        name = _name(record)
        if device is None and not device_known:
            device, name = _split_name(name)
        milliseconds = _milliseconds(record, bases)
        values = _values(record, bases, unicodedata.normalize("NFC", name))
        unit = _text(record, "u", bases.unit)
    except InvalidEvent as error:
        problem = str(error)
    group = None if milliseconds is None else current.get((bases.name, device, milliseconds))
    if group is None or not group.data.keys().isdisjoint(values):
        group = Group(device, milliseconds, timed=bases.time is not None)
        groups.append(group)
        if milliseconds is not None:
            current[bases.name, device, milliseconds] = group
    group.timed = group.timed or "t" in record
    group.data.update(values)
    group.records.append((record, bases))
    group.problem = group.problem or problem
    if unit is not None:
        group.units.update(dict.fromkeys(values, unit))


def _readable(value: object, characters_max: int) -> object:
    """Return a value that JSON can write; of a map or a list, which no SenML field is, only the kind."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return value[:characters_max]
    if isinstance(value, Invalid):
        return value.reason
    return value[:characters_max].hex() if isinstance(value, bytes) else type(value).__name__


def _split_name(name: str) -> tuple[str | None, str]:
    """Split a name at its last separator into device and own name; without a separator it names no device."""
    at = max(name.rfind(":"), name.rfind("/"))
    return (name[:at], name[at + 1 :]) if at > 0 else (None, name)


@dataclass(frozen=True, slots=True)
class Bases:
    """The base fields in force at a record, until another record changes them."""

    name: str = ""
    time: float | None = None
    unit: str | None = None
    value: float | None = None
    sum: float | None = None
    device: str | None = None
    """The base name without its trailing separator; None without a base name."""

    def after(self, record: Record) -> Bases:
        """Return the base fields after a record.

        Raise Undecodable where one of its own is invalid: no record after it could be resolved.
        """
        if BASE_FIELDS.isdisjoint(record):
            return self
        version = record.get("bver", VERSION_MAX)
        if type(version) is not int or not 0 < version <= VERSION_MAX:
            raise Undecodable(f"SenML: bver is not a version up to {VERSION_MAX}")
        try:
            name = (_text(record, "bn", self.name) or "")[:BASE_NAME_CHARACTERS_READ]
            return Bases(
                name=name,
                time=_number(record, "bt", self.time),
                unit=_text(record, "bu", self.unit),
                value=_number(record, "bv", self.value),
                sum=_number(record, "bs", self.sum),
                device=(name[:-1] if name[-1] in _SEPARATORS else name) if name else None,
            )
        except InvalidEvent as error:
            raise Undecodable(f"SenML: {error}") from None


def _read_record(item: object) -> Record:
    """Return a record with the names of its fields for their labels.

    Raise Undecodable where it is no map, or has a field that must be understood and is not.
    """
    if not isinstance(item, dict):
        raise Undecodable(f"SenML: {item.reason}" if isinstance(item, Invalid) else "SenML: a record is not a map")
    if item.keys() <= FIELDS:
        return item
    record: dict[object, object] = {}
    for label, value in item.items():
        if type(label) is int:
            record[CBOR_LABELS.get(label, label)] = value
        elif type(label) is not str:
            raise Undecodable("SenML: a key is not text")
        elif label.endswith("_"):  # RFC 8428 section 4.4: must be understood
            raise Undecodable(f"SenML: unknown field {label[:64]!a}")
        else:
            record[label] = value
    if len(record) != len(item):
        raise Undecodable("SenML: a record has a field twice")
    return record


def _name(record: Record) -> str:
    """Return the record's own name; empty where it has none."""
    name = _text(record, "n", "") or ""
    try:
        check_text(name)
    except InvalidValue as error:
        raise InvalidEvent(f"n: {error}") from None
    return name


def _milliseconds(record: Record, bases: Bases) -> int:
    """Return the sum of base time and time in milliseconds, rounded half to even."""
    seconds = (_number(record, "t", 0) or 0) + (bases.time or 0)
    if not TIME_MIN <= seconds * 1000 <= TIME_MAX:
        raise InvalidEvent("time is outside the years 1 to 9999")
    return round(seconds * 1000)


def _values(record: Record, bases: Bases, name: str) -> dict[str, object]:
    """Return a map of the record's name to its value, and of name#sum to its sum."""
    name = name or VALUE_NAME_DEFAULT
    fields = [field for field in _VALUE_FIELDS if field in record]
    if len(fields) > 1:
        raise InvalidEvent(f"a record has both {fields[0]} and {fields[1]}")
    values: dict[str, object] = {}
    if fields:
        values[name] = _value(record, fields[0], bases)
    if "s" in record:
        values[f"{name}#sum"] = (_number(record, "s", 0) or 0) + (bases.sum or 0)
    if not values:  # RFC 8428 section 4.5.4: the one that is missing counts as zero
        if bases.value is not None:
            values[name] = bases.value
        elif bases.sum is not None:
            values[f"{name}#sum"] = bases.sum
        else:
            raise InvalidEvent("a record has no value")
    return values


def _value(record: Record, field: str, bases: Bases) -> object:
    value = record[field]
    if field == "v":
        return (_number(record, "v", 0) or 0) + (bases.value or 0)
    if field == "vd":
        return _data(value)
    if type(value) is not (str if field == "vs" else bool):
        raise InvalidEvent(f"{field} is {'not text' if field == 'vs' else 'not true or false'}")
    return value


def _data(value: object) -> bytes:
    """Return the bytes of vd, which are base64url in JSON."""
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return decode_base64url(value)
    except InvalidValue as error:
        raise InvalidEvent(f"vd: {error}") from None
    raise InvalidEvent("vd is not bytes")


def _number(record: Record, field: str, default: float | None) -> float | None:
    """Return a number, an integer as an int; the default where the field is absent."""
    if field not in record:
        return default
    value = record[field]
    if (type(value) is int or type(value) is float) and isfinite(value):
        return value
    raise InvalidEvent(f"{field}: {value.reason}" if isinstance(value, Invalid) else f"{field} is not a finite number")


def _text(record: Record, field: str, default: str | None) -> str | None:
    value = record.get(field, default)
    if value is None and field not in record:
        return None
    if type(value) is not str:
        raise InvalidEvent(f"{field}: {value.reason}" if isinstance(value, Invalid) else f"{field} is not text")
    return value
