"""Builds the Kafka record of a stored event."""

from __future__ import annotations

from typing import NamedTuple

from agent.store.port import StoredEvent
from contract.record import Acceptance, Headers, encode_headers, encode_value, read_header_fields


class Record(NamedTuple):
    """A record to produce; a named tuple, since one is made for each event and it costs a third of a dataclass."""

    key: bytes
    value: bytes
    headers: Headers


def encode(event: StoredEvent, gateway: str) -> Record:
    """Return the record of an event: keyed by its device, so that all its duplicates are in one partition."""
    fields = read_header_fields(event.tail)
    acceptance = Acceptance(fields.received, fields.via, event.clock, event.shared, event.bound)
    return Record(
        fields.device.encode(),
        encode_value(event.fingerprint, gateway, event.label, event.tail),
        encode_headers(event.fingerprint, gateway, event.label, fields.device, fields.type, fields.time, acceptance),
    )


def is_own(event: StoredEvent) -> bool:
    """Whether an event is the gateway's own, such as the declaration of a gap."""
    return read_header_fields(event.tail).via == "gateway"
