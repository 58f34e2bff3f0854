"""The fingerprint: one name for one event, the same on every path and in every form."""

from collections.abc import Iterable
from hashlib import blake2b

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
    encoded = cbor.encode_map(identity(event, fields, label))
    return blake2b(encoded, digest_size=FINGERPRINT_BYTES, person=PERSON).digest()
