"""A statement: all that a sensor said of one event, in a form in which equal content is equal bytes.

This is the oracle's own idea of equality, made without any code of the product.
"""

from __future__ import annotations

from hashlib import blake2b

import orjson

from contract.event import Event, Value
from simulators.evidence.row import Row

_INTEGER_MIN, _INTEGER_END = -(1 << 63), 1 << 64
_DIGEST_BYTES = 16
_LABELS = ("", "", "id=", "boot=", "time=", "data=")


def canonical(data: Value) -> bytes:
    """Write data so that equal content is equal bytes: keys sorted, 21.0 as 21, entries with null left out."""
    return orjson.dumps(_reduced(data), option=orjson.OPT_SORT_KEYS)


def statement(said: Event | Row, time: int | None = None) -> bytes:
    """Write what was said: device, type, id, boot, time, data; with `time`, as if it had been said with that time."""
    # Id and boot as text: the table has them so.
    head = f"{said.device}\0{said.type}\0{said.id}\0{said.boot}\0{said.time if time is None else time}\0"
    return head.encode() + canonical(said.data)


def digest(said: bytes) -> bytes:
    """Give 16 bytes that stand for a statement."""
    return blake2b(said, digest_size=_DIGEST_BYTES).digest()


def name(said: bytes) -> bytes | None:
    """Give what names the event beside its data; None where it has neither id nor time."""
    head, _, _ = said.rpartition(b"\0")
    _, _, id_, _, time = head.split(b"\0")
    return None if id_ == time == b"None" else head


def words(said: bytes) -> str:
    """Write a statement for people."""
    parts = said.decode(errors="replace").split("\0", 5)
    return " ".join(label + part for label, part in zip(_LABELS, parts, strict=True) if part != "None")


def _reduced(value: Value) -> Value:
    if type(value) is float:
        return int(value) if value.is_integer() and _INTEGER_MIN <= value < _INTEGER_END else value
    if isinstance(value, dict):
        return {key: _reduced(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_reduced(entry) for entry in value]
    return value
