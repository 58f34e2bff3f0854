"""Decode and identify bodies in one form of the modules: a JSON array in each line of input, its results in one line.

It runs as a program of its own, and imports nothing but contract and agent.
"""

import json
import sys
from dataclasses import replace
from typing import Any

from agent import release
from agent.coap.dispatcher import read_plain_post
from agent.coap.message import HEADER_BYTES, MessageFormatError, split
from agent.coap.sanitizer import sanitize
from agent.config.identity_rules import IdentityRule
from agent.config.settings import IdentitySettings
from agent.decode.decoded import Undecodable, UnknownFormat
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from agent.http.head import read_whole_post
from agent.identity.identify import identify
from agent.mqtt.packets import Packets
from contract.event import Label
from contract.fingerprint import fingerprint
from contract.record import ClockTrust, encode_record, read_data, read_header_fields

RECEIVED_MS = 1_763_706_012_345
LABEL = Label("00c0ffee00c0ffee", 7)
PACKET_BYTES_MAX = 4_096
SETTINGS = (
    IdentitySettings(),
    IdentitySettings(
        resend_horizon_seconds=3_600.0,
        rules=(
            IdentityRule("urn:dev:mac:*", ("device", "id", "data")),
            IdentityRule("*", ("device", "type", "data"), window_seconds=60.0),
        ),
    ),
)


def records(body: bytes, media: str, via: str, query: dict[str, str]) -> list[object]:
    """Return what becomes of a delivery: the candidates, their records, and what was rejected."""
    try:
        decoded = decode(Delivery(body, Media[media], via, "coap://[fe80::1]", query=query))
    except (Undecodable, UnknownFormat) as error:
        return [type(error).__name__, str(error)]
    found: list[object] = [decoded.rejected]
    for settings in SETTINGS:
        for event in decoded.events:
            candidate = identify(event, via, RECEIVED_MS, ClockTrust.TRUSTED, settings)
            name = candidate.fingerprint or fingerprint(event, candidate.fields, LABEL)
            clock, shared, bound = ClockTrust.TRUSTED, candidate.shared, candidate.bound
            record = encode_record(name, "gw", LABEL, candidate.tail, clock, shared, bound)
            # The key is a hash for one process only.
            found += [
                replace(candidate, similarity_key=None),
                candidate.similarity_key is None,
                record,
                read_header_fields(candidate.tail),
                read_data(candidate.tail),
            ]
    return found


def datagram_parts(datagram: bytes) -> list[object]:
    """Return a CoAP message's parts, and its options where it is a plain POST."""
    if len(datagram) < HEADER_BYTES:
        return []
    try:
        parts = split(datagram)
        return [parts, read_plain_post(parts[1]), sanitize(datagram, oscore=True)]
    except MessageFormatError as error:
        return [str(error)]


def packet_items(data: bytes) -> list[object]:
    """Return the MQTT packets that a stream of bytes holds, in one piece and in many."""
    found: list[object] = []
    for step in (len(data) or 1, 7):
        packets = Packets(PACKET_BYTES_MAX, properties=True)
        try:
            found += [packets.feed(data[at : at + step]) for at in range(0, len(data), step)]
        except Exception as error:  # noqa: BLE001  # its type and text are compared
            found.append([type(error).__name__, str(error)])
    return found


def outcome(line: list[Any]) -> list[object]:
    """Return what becomes of one line's bytes."""
    kind, digits, *rest = line
    data = bytes.fromhex(digits)
    if kind == "coap":
        return datagram_parts(data)
    if kind == "mqtt":
        return packet_items(data)
    if kind == "http":
        return [read_whole_post(data, "127.0.0.1")]
    return records(data, *rest)


if __name__ == "__main__":
    print(release.form())
    for text in sys.stdin:
        print(ascii(outcome(json.loads(text))))
