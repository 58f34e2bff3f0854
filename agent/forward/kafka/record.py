"""Builds the Kafka record of a stored event."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from agent.store.port import StoredEvent
from contract.record import Acceptance, Headers, encode_headers, encode_value


class Record(NamedTuple):
    """A record to produce; a named tuple, since one is made for each event and it costs a third of a dataclass."""

    key: bytes
    value: bytes
    headers: Headers


class Front(NamedTuple):
    """The fields at the value's beginning, which the headers repeat."""

    device: str
    type: str
    time: int | None
    received: int
    via: str


def encode(event: StoredEvent, gateway: str) -> Record:
    """Return the record of an event, keyed by its device, so that all its copies are in one partition."""
    front = read_front(event.tail)
    acceptance = Acceptance(front.received, front.via, event.clock, event.shared, event.bound)
    return Record(
        front.device.encode(),
        encode_value(event.fingerprint, gateway, event.label, event.tail),
        encode_headers(event.fingerprint, gateway, event.label, front.device, front.type, front.time, acceptance),
    )


def is_own(event: StoredEvent) -> bool:
    """Whether an event is the gateway's own, such as the declaration of a gap."""
    return read_front(event.tail).via == "gateway"


def read_front(tail: bytes) -> Front:
    """Read back what `contract.record.encode_tail` wrote before the data."""
    match = _FRONT.match(tail)
    if match is None:
        return _read_escaped_front(tail)
    device, type_, time, received, via = match.groups()
    return Front(device.decode(), type_.decode(), None if time is None else int(time), int(received), via.decode())


_TEXT = rb'"[^"\\]*"'
_CAPTURED_TEXT = rb'"([^"\\]*)"'
# One match costs a fifth of decoding the whole JSON, and its cost does not grow with the data.
_FRONT = re.compile(
    rb'"device":' + _CAPTURED_TEXT + rb',"type":' + _CAPTURED_TEXT
    + rb'(?:,"id":(?:-?[0-9]+|' + _TEXT + rb"))?"
    + rb'(?:,"boot":(?:-?[0-9]+|' + _TEXT + rb"))?"
    + rb'(?:,"time":(-?[0-9]+))?(?:,"offset_ms":-?[0-9]+)?'
    + rb',"received":(-?[0-9]+),"via":' + _CAPTURED_TEXT
)  # fmt: skip


def _read_escaped_front(tail: bytes) -> Front:
    """Read a tail in which some text holds a quote, a backslash or a control character."""
    entries = json.loads(b"{" + tail + b"}")
    return Front(entries["device"], entries["type"], entries.get("time"), entries["received"], entries["via"])
