"""A message of the topic as an entry of the consumer's table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from contract.record import VALUE_PREFIX

FINGERPRINT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One record; where `reason` is given it is for quarantine."""

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
    reason: str | None = None


def read_message(message: Message) -> Entry:
    """Read a record; one that is not ours, or broken, gets a reason instead of fields."""
    partition, offset, value = message.partition() or 0, message.offset() or 0, message.value() or b""
    try:
        return Entry(partition, offset, value, **_fields(_mark(message), value))
    except (ValueError, KeyError, TypeError) as error:
        return Entry(partition, offset, value, reason=f"{type(error).__name__}: {error}"[:200])


def _mark(message: Message) -> bytes:
    headers: Any = message.headers() or []
    return next((given for name, given in headers if name == "ce_id" and given is not None), b"")


def _fields(mark: bytes, value: bytes) -> dict[str, Any]:
    fingerprint = bytes.fromhex(mark.decode("ascii"))
    if len(fingerprint) != FINGERPRINT_BYTES or not value.startswith(VALUE_PREFIX + mark + b'"'):
        raise ValueError("the headers' fingerprint is not the value's")
    told = json.loads(value)
    return {
        "fingerprint": fingerprint,
        "device": _text(told["device"]),
        "type": _text(told["type"]),
        "id": _text(told["id"]) if "id" in told else None,
        "time": int(told["time"]) if "time" in told else None,
        "data": json.dumps(told["data"], ensure_ascii=False, separators=(",", ":")) if "data" in told else None,
    }


def _text(value: object) -> str:
    """PostgreSQL has no NUL in a text."""
    return str(value).replace("\x00", "\ufffd").encode(errors="replace").decode()
