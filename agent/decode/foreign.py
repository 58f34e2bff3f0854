"""Reads payloads of other programs by their mapping."""

from __future__ import annotations

from agent.decode import json
from agent.decode.decoded import EVENTS_MAX, REJECTED_BYTES_MAX, Decoded, InvalidEvent, Rejected, Undecodable
from agent.decode.event_map import check_not_reserved, claimed_device, to_event
from agent.decode.query import NO_PARAMETERS
from agent.delivery import ForeignFormat
from agent.mappings.mapping import Unmapped
from contract.event import Event


def decode_foreign(body: bytes, format_: ForeignFormat, fallback: str) -> Decoded:
    """Return what the mapping makes of a body; raise Undecodable where it is no message of the mapping."""
    try:
        mapped = format_.mapping.apply(_document(body), format_.topic, format_.headers, EVENTS_MAX)
    except Unmapped as error:
        raise Undecodable(str(error)) from None
    events: list[Event] = []
    rejected: list[Rejected] = []
    for entries in mapped.events:
        if isinstance(entries, Unmapped):
            rejected.append(Rejected(fallback, str(entries), body[:REJECTED_BYTES_MAX]))
            continue
        try:
            event = to_event(entries, NO_PARAMETERS, fallback, may_have_ext=True)
            check_not_reserved(event)
        except InvalidEvent as invalid:
            device = claimed_device(entries, NO_PARAMETERS, fallback)
            reason = f"mapping {format_.mapping.name}: {invalid}"
            rejected.append(Rejected(device, reason, body[:REJECTED_BYTES_MAX]))
        else:
            events.append(event)
    return Decoded(tuple(events), tuple(rejected), mapped.skipped)


def _document(body: bytes) -> object:
    """Return the JSON value; a body that is no JSON is its text."""
    try:
        return json.read_foreign(body)
    except Undecodable:
        try:
            return body.decode().strip()
        except UnicodeDecodeError as error:
            raise Undecodable(f"neither JSON nor UTF-8 text, at byte {error.start}") from None
