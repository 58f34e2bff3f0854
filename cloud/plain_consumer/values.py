"""Decodes messages of the topic into entries for the consumer's table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from contract.event import TIME_MAX, TIME_MIN
from contract.fields import KEYS
from contract.record import VALUE_PREFIX

FINGERPRINT_BYTES = 16
_NUL = re.compile(r"(?<!\\)((?:\\\\)*+)\\u0000")
"""The escape of NUL, which PostgreSQL does not support in JSON."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, for the quarantine where it has a `reason`."""

    partition: int
    offset: int
    value: bytes
    fingerprint: bytes | None = None
    device: str | None = None
    type: str | None = None
    id: str | None = None
    time: int | None = None
    """Milliseconds since 1970 UTC."""
    data: str | None = None
    ext: str | None = None
    unknown: tuple[str, ...] = ()
    """The keys of the value that are not known here, those of a later gateway."""
    reason: str | None = None


def read_message(message: Message) -> Entry:
    """Return a record's entry; a malformed record gets a reason instead of fields."""
    partition, offset, value = message.partition() or 0, message.offset() or 0, message.value() or b""
    try:
        return Entry(partition, offset, value, **_fields(_header_fingerprint(message), value))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return Entry(partition, offset, value, reason=f"{type(error).__name__}: {error}"[:200])


def _header_fingerprint(message: Message) -> bytes:
    headers: Any = message.headers() or []
    return next((given for name, given in headers if name == "ce_id" and given is not None), b"")


def _fields(fingerprint_hex: bytes, value: bytes) -> dict[str, Any]:
    fingerprint = bytes.fromhex(fingerprint_hex.decode("ascii"))
    if len(fingerprint) != FINGERPRINT_BYTES or not value.startswith(VALUE_PREFIX + fingerprint_hex + b'"'):
        raise ValueError("the fingerprints of headers and value differ")
    entries = json.loads(value)
    return {
        "fingerprint": fingerprint,
        "device": _text(entries["device"]),
        "type": _text(entries["type"]),
        "id": _text(entries["id"]) if "id" in entries else None,
        "time": _time(entries["time"]) if "time" in entries else None,
        "data": _json("data", entries["data"]) if "data" in entries else None,
        "ext": _json("ext", entries["ext"]) if "ext" in entries else None,
        "unknown": tuple(entries.keys() - KEYS),
    }


def _json(name: str, entries: Any) -> str:
    """Return an object as JSON for PostgreSQL; raise ValueError where it is none."""
    if not isinstance(entries, dict):
        raise ValueError(f"{name} is not an object")  # a value of a record, not a call
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _text(_NUL.sub("\\1\ufffd", text))


def _time(value: Any) -> int:
    """Return a time; raise ValueError for one that no event has, and most of which PostgreSQL refuses."""
    if not TIME_MIN <= (time := int(value)) <= TIME_MAX:
        raise ValueError("the time is outside the years 1 to 9999")
    return time


def _text(value: object) -> str:
    """Return a value as text for PostgreSQL, which supports neither NUL nor a surrogate."""
    return str(value).replace("\x00", "\ufffd").encode(errors="replace").decode()
