"""SenML packs (RFC 8428): resolved records of one base name and one time form one event."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.decode.decoded import InvalidEvent, Undecodable
from agent.decode.senml_record import (
    BASE_FIELDS,
    Bases,
    Record,
    read_record,
    resolve_milliseconds,
    resolve_name,
    resolve_unit,
    resolve_values,
)
from contract.values import Invalid

RECORDS_MAX: Final = 512
"""Records in one pack. Each takes up to 40 microseconds, during which no other sensor is served."""
RELATIVE_END_MS: Final = (1 << 28) * 1000
"""Times below 2^28 seconds are relative to now (RFC 8428 section 4.5.3)."""


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
        record = read_record(item)
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
        name = resolve_name(record)
        if device is None and not device_known:
            device, name = _split_name(name)
        milliseconds = resolve_milliseconds(record, bases)
        values = resolve_values(record, bases, unicodedata.normalize("NFC", name))
        unit = resolve_unit(record, bases)
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
