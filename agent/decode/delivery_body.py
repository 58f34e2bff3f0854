"""Decodes the body of a delivery into events, and rejects those that are invalid beside valid ones."""

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Final

from agent.decode import cbor, json, senml, zigbee2mqtt
from agent.decode.decoded import (
    EVENTS_MAX,
    REJECTED_BYTES_MAX,
    Decoded,
    InvalidEvent,
    Rejected,
    Undecodable,
    UnknownFormat,
)
from agent.decode.event_map import (
    NO_PARAMETERS,
    Parameters,
    check_not_reserved,
    claimed_device,
    read_query,
    to_event,
)
from agent.delivery import Delivery, ForeignFormat, Media
from agent.mappings.mapping import Unmapped
from contract.event import Event
from contract.values import Invalid

BODY_BYTES_MAX: Final = 1 << 20
"""Bounds the memory for one body; each transport has a bound of its own below this one."""
PACK_REJECTED_BYTES_MAX: Final = 1 << 16
"""Bytes that are kept of all rejected events of one SenML pack, each of which repeats the base name in force."""


def decode(delivery: Delivery) -> Decoded:
    """Decode the body of a delivery.

    Raise UnknownFormat where its media type is none of ours, Undecodable where the body as a whole cannot be read.
    """
    if delivery.media is None:
        raise UnknownFormat("the format is none of JSON, CBOR, SenML JSON, SenML CBOR")
    if not delivery.body:
        raise Undecodable("the body is empty")
    if len(delivery.body) > BODY_BYTES_MAX:
        raise Undecodable(f"the body is longer than {BODY_BYTES_MAX} bytes")
    if isinstance(delivery.media, ForeignFormat):
        return decode_foreign(delivery.body, delivery.media, delivery.authenticated or delivery.sender)
    query = read_query(delivery.query) if delivery.query else NO_PARAMETERS
    fallback = delivery.authenticated or delivery.sender
    match delivery.media:
        case Media.JSON:
            return _decode_maps(json.read(delivery.body), json.split, delivery.body, query, fallback)
        case Media.CBOR:
            return _decode_maps(cbor.read(delivery.body), cbor.split, delivery.body, query, fallback)
        case Media.ZIGBEE2MQTT:
            event = zigbee2mqtt.read(delivery.body)
            return _decode_maps(event, json.split, delivery.body, query, fallback, may_have_ext=True)
        case Media.SENML_JSON:
            document = json.read(delivery.body)
        case Media.SENML_CBOR:
            document = cbor.read(delivery.body, integer_keys=True)
    device_known = delivery.authenticated is not None or "device" in query
    return _decode_pack(senml.resolve(document, device_known), query, fallback)


_MAPS_KINDS: Final[tuple[type, ...]] = (dict, list, Invalid)


_Split = Callable[[bytes], list[bytes]]
"""Cuts a body that is an array into its items."""


def _decode_maps(
    document: object, split: _Split, body: bytes, query: Parameters, fallback: str, may_have_ext: bool = False
) -> Decoded:
    maps = document if isinstance(document, list) else [document]
    if not isinstance(document, _MAPS_KINDS):
        raise Undecodable("the body is neither a map nor an array of maps")
    _check_count(len(maps), query)
    events, refused = _separate(zip(maps, repeat(None)), query, fallback, may_have_ext)
    if not refused:
        return Decoded(events)
    raws = split(body) if isinstance(document, list) else [body]
    rejected = [
        Rejected(claimed_device(maps[at], query, fallback), reason, raws[at][:REJECTED_BYTES_MAX])
        for at, reason in refused
    ]
    return Decoded(events, tuple(rejected))


def _decode_pack(groups: list[senml.Group], query: Parameters, fallback: str) -> Decoded:
    _check_count(len(groups), query)
    entries = [(group.entries(), group.offset_ms) for group in groups]
    events, refused = _separate(entries, query, fallback)
    rejected: list[Rejected] = []
    bytes_left = PACK_REJECTED_BYTES_MAX
    for at, reason in refused:
        raw = groups[at].raw(min(bytes_left, REJECTED_BYTES_MAX))
        bytes_left -= len(raw)
        rejected.append(Rejected(claimed_device({"device": groups[at].device}, query, fallback), reason, raw))
    return Decoded(events, tuple(rejected))


def _check_count(events: int, query: Parameters) -> None:
    if events > EVENTS_MAX:
        raise Undecodable(f"the body holds more than {EVENTS_MAX} events")
    if events > 1 and not query.keys().isdisjoint(("id", "boot", "time")):
        raise Undecodable("query: id, boot and t are for one event, and the body holds several")


def _separate(
    sources: Iterable[tuple[object, int | None]], query: Parameters, fallback: str, may_have_ext: bool = False
) -> tuple[tuple[Event, ...], list[tuple[int, str]]]:
    """Return the valid events, and the position and the reason of each invalid one."""
    events: list[Event] = []
    refused: list[tuple[int, str]] = []
    for at, (entries, offset_ms) in enumerate(sources):
        try:
            event = to_event(entries, query, fallback, offset_ms, may_have_ext)
            check_not_reserved(event)
        except InvalidEvent as error:
            refused.append((at, str(error)))
        else:
            events.append(event)
    return tuple(events), refused


def decode_foreign(body: bytes, format_: ForeignFormat, fallback: str) -> Decoded:
    """Return what the mapping makes of a body; raise Undecodable where it is no message of the mapping."""
    try:
        mapped, skipped = format_.mapping.apply(_document(body), format_.topic, format_.headers, EVENTS_MAX)
    except Unmapped as error:
        raise Undecodable(str(error)) from None
    events, refused = _separate(zip(mapped, repeat(None)), NO_PARAMETERS, fallback, may_have_ext=True)
    rejected: list[Rejected] = []
    for at, reason in refused:
        named = reason if isinstance(mapped[at], Invalid) else f"mapping {format_.mapping.name}: {reason}"
        device = claimed_device(mapped[at], NO_PARAMETERS, fallback)
        rejected.append(Rejected(device, named, body[:REJECTED_BYTES_MAX]))
    return Decoded(events, tuple(rejected), skipped)


def _document(body: bytes) -> object:
    """Return the JSON value; a body that is no JSON is its text."""
    try:
        return json.read_foreign(body)
    except Undecodable:
        try:
            return body.decode().strip()
        except UnicodeDecodeError as error:
            raise Undecodable(f"neither JSON nor UTF-8 text, at byte {error.start}") from None
