"""Statements: everything that a sensor reported of one event, in a canonical encoding.

This definition of equality is independent of the product's code.
"""

from hashlib import blake2b

import orjson

from contract.event import Event, Value
from simulators.evidence.row import Row

_INTEGER_MIN, _INTEGER_END = -(1 << 63), 1 << 64
_DIGEST_BYTES = 16
_LABELS = ("id", "boot", "time")
_NO_DATA = "null"


def canonical(data: Value) -> bytes:
    """Encode data canonically: keys sorted, 21.0 as 21, entries with null left out."""
    return orjson.dumps(_reduced(data), option=orjson.OPT_SORT_KEYS)


def statement(reported: Event | Row, time: int | None = None) -> bytes:
    """Encode device, type, id, boot, time and data; `time` replaces the event's own time.

    Id and boot are encoded as text, as in the table; `form` returns their original types.
    """
    time_of_event = reported.time if time is None else time
    head = f"{reported.device}\0{reported.type}\0{_text(reported.id)}\0{_text(reported.boot)}\0{_text(time_of_event)}\0"
    return head.encode() + canonical(reported.data)


def form(reported: Event | Row) -> int:
    """Return the types of id and boot as flags: 1 where the id is text, 2 where the boot count is text."""
    return (type(reported.id) is str) + 2 * (type(reported.boot) is str)


def digest(encoded: bytes) -> bytes:
    """Return the 16-byte digest of a statement."""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).digest()


def name(encoded: bytes) -> bytes | None:
    """Return the statement without its data; None where it has neither id nor time."""
    head, _, _ = encoded.rpartition(b"\0")
    _, _, id_, _, time = head.split(b"\0")
    return None if id_ == time == b"" else head


def readable(encoded: bytes) -> str:
    """Return a statement in readable form."""
    device, type_, *named, data = encoded.decode(errors="replace").split("\0", 5)
    labelled = (f"{label}{part}" for label, part in zip(_LABELS, named, strict=True) if part)
    return " ".join((device, type_, *labelled, *([] if data == _NO_DATA else [f"data={data}"])))


def _text(value: int | str | None) -> str:
    """Encode a value so that None differs from every text."""
    return "" if value is None else f"={value}"


def _reduced(value: Value) -> Value:
    if type(value) is float:
        return int(value) if value.is_integer() and _INTEGER_MIN <= value < _INTEGER_END else value
    if isinstance(value, dict):
        return {key: _reduced(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_reduced(entry) for entry in value]
    return value
