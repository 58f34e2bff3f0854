"""The fingerprint: one name for one event, the same on every path and in every form."""

from collections.abc import Iterable
from hashlib import blake2b
from operator import attrgetter

from contract import cbor
from contract.event import Event, Label

FINGERPRINT_BYTES = 16
PERSON = b"oncegate-fp-1"
IDENTITY_FIELDS = ("device", "type", "id", "boot", "time", "data")


def needs_label(event: Event, fields: Iterable[str] = IDENTITY_FIELDS) -> bool:
    """Tell whether the event cannot be told from its twin, so that its label has to join its identity."""
    return not ((event.id is not None and "id" in fields) or (event.time is not None and "time" in fields))


def identity(event: Event, fields: Iterable[str] = IDENTITY_FIELDS, label: Label | None = None) -> dict[str, object]:
    """Give the identity fields that are present; the label joins where one is given."""
    entries: dict[str, object] = {name: getattr(event, name) for name in fields}
    if label is not None:
        entries["epoch"] = label.epoch
        entries["sequence"] = label.sequence
    return entries


def fingerprint(event: Event, fields: Iterable[str] = IDENTITY_FIELDS, label: Label | None = None) -> bytes:
    """Compute the 16 bytes of an event; raise ValueError where it needs a label and none is given."""
    if label is None and needs_label(event, fields):
        raise ValueError("an event with neither id nor time has no fingerprint before it has a label")
    if label is None and fields is IDENTITY_FIELDS:
        encoded = _encode_whole(event)
    else:
        encoded = cbor.encode_map(identity(event, fields, label))
    return blake2b(encoded, digest_size=FINGERPRINT_BYTES, person=PERSON).digest()


_IN_ORDER = sorted(IDENTITY_FIELDS, key=cbor.encode_text)
_KEYS = tuple(cbor.encode_text(name) for name in _IN_ORDER)
_read_fields = attrgetter(*_IN_ORDER)


def _encode_whole(event: Event) -> bytes:
    """Encode the identity of nearly every event: as `encode_map` does, with the keys' order and bytes known before."""
    values = _read_fields(event)
    parts = [cbor.head(0xA0, len(values) - values.count(None))]
    for key, value in zip(_KEYS, values, strict=True):
        if value is not None:
            parts.append(key)
            cbor.encode_into(parts, value)
    return b"".join(parts)
