"""A delivery's body, taken apart into events and what has to be rejected beside them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, Protocol

from agent.decode import cbor, json, senml, zigbee2mqtt
from agent.decode.error import InvalidEvent, Undecodable, UnknownFormat
from agent.decode.event_map import claimed_device, refuse_reserved, to_event
from agent.decode.query import NO_WORDS, Words, read_words
from agent.delivery import Delivery, Media
from contract.event import Event
from contract.values import Invalid

BODY_BYTES_MAX = 1 << 20
"""A safeguard of memory; the ways in have bounds of their own, below this one."""
EVENTS_MAX = 1024
"""Events in one body. Each takes some 10 microseconds, for which all other sensors wait."""
REJECTED_BYTES_MAX = 4096
"""Kept of one rejected event."""
PACK_REJECTED_BYTES_MAX = 1 << 16
"""Kept of all rejected events of one SenML pack, each of which is written with the base name that was in force."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that cannot be kept, with as much of its own bytes as is worth keeping."""

    device: str
    """The one that it names, where that is readable; else the sender."""
    reason: str
    raw: bytes


class Decoded(NamedTuple):
    """The events of a body in their order, and the rejected ones beside them."""

    events: tuple[Event, ...]
    rejected: tuple[Rejected, ...] = ()


def decode(delivery: Delivery) -> Decoded:
    """Take a body apart; raise UnknownFormat, or Undecodable where it cannot be read as a whole."""
    if delivery.media is None:
        raise UnknownFormat("the format is none of JSON, CBOR, SenML JSON, SenML CBOR")
    if not delivery.body:
        raise Undecodable("the body is empty")
    if len(delivery.body) > BODY_BYTES_MAX:
        raise Undecodable(f"the body is longer than {BODY_BYTES_MAX} bytes")
    words = read_words(delivery.query) if delivery.query else NO_WORDS
    fallback = delivery.authenticated or delivery.sender
    match delivery.media:
        case Media.JSON:
            return _decode_maps(json, delivery.body, words, fallback)
        case Media.CBOR:
            return _decode_maps(cbor, delivery.body, words, fallback)
        case Media.ZIGBEE2MQTT:
            return _decode_maps(zigbee2mqtt, delivery.body, words, fallback)
        case Media.SENML_JSON:
            document = json.read(delivery.body)
        case Media.SENML_CBOR:
            document = cbor.read(delivery.body, integer_keys=True)
    device_known = delivery.authenticated is not None or words.device is not None
    return _decode_pack(senml.resolve(document, device_known), words, fallback)


_MAPS_KINDS = (dict, list, Invalid)


class _Form(Protocol):
    """How bodies of maps are read."""

    def read(self, body: bytes) -> object: ...
    def split(self, body: bytes) -> list[bytes]: ...


def _decode_maps(form: _Form, body: bytes, words: Words, fallback: str) -> Decoded:
    document = form.read(body)
    maps = document if isinstance(document, list) else [document]
    if not isinstance(document, _MAPS_KINDS):
        raise Undecodable("the body is neither a map nor an array of maps")
    _check_count(len(maps), words)
    events, refused = _sort_out(zip(maps, repeat(None)), words, fallback)
    if not refused:
        return Decoded(events)
    raws = form.split(body) if isinstance(document, list) else [body]
    rejected = [_reject(claimed_device(maps[at], words, fallback), reason, raws[at]) for at, reason in refused]
    return Decoded(events, tuple(rejected))


def _decode_pack(groups: list[senml.Group], words: Words, fallback: str) -> Decoded:
    _check_count(len(groups), words)
    entries = [(group.entries(), group.offset_ms) for group in groups]
    events, refused = _sort_out(entries, words, fallback)
    rejected: list[Rejected] = []
    room = PACK_REJECTED_BYTES_MAX
    for at, reason in refused:
        raw = groups[at].raw(min(room, REJECTED_BYTES_MAX))
        room -= len(raw)
        rejected.append(Rejected(claimed_device({"device": groups[at].device}, words, fallback), reason, raw))
    return Decoded(events, tuple(rejected))


def _check_count(events: int, words: Words) -> None:
    if events > EVENTS_MAX:
        raise Undecodable(f"the body holds more than {EVENTS_MAX} events")
    if events > 1 and words.single:
        raise Undecodable("query: id, boot and t are for one event, and the body holds several")


def _sort_out(
    sources: Iterable[tuple[object, int | None]], words: Words, fallback: str
) -> tuple[tuple[Event, ...], list[tuple[int, str]]]:
    """Return the events, and of the others position and reason."""
    events: list[Event] = []
    refused: list[tuple[int, str]] = []
    for at, (entries, offset_ms) in enumerate(sources):
        try:
            event = to_event(entries, words, fallback, offset_ms)
            refuse_reserved(event)
        except InvalidEvent as error:
            refused.append((at, str(error)))
        else:
            events.append(event)
    return tuple(events), refused


def _reject(device: str, reason: str, raw: bytes) -> Rejected:
    return Rejected(device, reason, raw[:REJECTED_BYTES_MAX])
