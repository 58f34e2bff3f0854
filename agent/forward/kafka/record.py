"""Builds the Kafka record of a stored event."""

from collections.abc import Callable

from agent.store.port import StoredEvent
from contract.record import Record, encode_record, read_header_fields


def encode(event: StoredEvent, gateway: str, sign: Callable[[bytes, bytes, bytes], bytes] | None = None) -> Record:
    """Return the record of an event: keyed by its device, so that all its duplicates are in one partition."""
    stated = (event.clock, event.shared, event.bound)
    return encode_record(event.fingerprint, gateway, event.label, event.tail, *stated, sign=sign)


def is_own(event: StoredEvent) -> bool:
    """Whether an event is the gateway's own, such as the declaration of a gap."""
    return read_header_fields(event.tail).via == "gateway"
