"""Measure how long one body holds the event loop: bodies that are made to be slow, through decoding and identity.

Then the time of a mapping: an uplink of ChirpStack, beside the same event in our own JSON.
"""

import json
import sys
from time import thread_time

from agent.config.settings import IdentitySettings
from agent.decode.decoded import Undecodable
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, ForeignFormat, Media
from agent.identity.identify import identify
from agent.mappings import catalog
from benchmarks import report
from benchmarks.bodies import BODY_BYTES, slow_bodies
from benchmarks.report import Figure
from contract.record import ClockTrust

ROUNDS = 5
"""Rounds for each body in each format; the fastest counts, since other processes disturb the measurement."""
GOAL_MS = 20.0
SHOWN = 5
MAPPED = 2_000
"""Messages in each turn of the comparison of mapping and JSON."""
MAPPING_GOAL_US = 15.0
TOPIC = ["application", "1", "device", "0101010101abcdef", "event", "up"]
UPLINK = {
    "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
    "time": "2022-07-18T09:34:15.775023242+00:00",
    "deviceInfo": {
        "tenantId": "52f14cd4-c6f1-4fbd-8f87-4025e1d49242",
        "tenantName": "ChirpStack",
        "applicationId": "17c82e96-be03-4f38-aef3-f83d48582d97",
        "applicationName": "Test application",
        "deviceProfileId": "14855bf7-d10d-4aee-b618-ebfcb64dc7ad",
        "deviceProfileName": "Test device-profile",
        "deviceName": "Test device",
        "devEui": "0101010101010101",
        "tags": {"key": "value"},
    },
    "devAddr": "00189440",
    "dr": 1,
    "fPort": 1,
    "data": "qg==",
    "object": {"temperature": 25.2, "humidity": 40},
    "rxInfo": [
        {"gatewayId": "0016c001f153a14c", "uplinkId": 4217106255, "rssi": -36, "snr": 10.5, "context": "E3OWOQ=="}
    ],
    "txInfo": {"frequency": 867100000, "modulation": {"lora": {"bandwidth": 125000, "spreadingFactor": 11}}},
}
OWN = {
    "device": "urn:dev:mac:0101010101010101",
    "id": UPLINK["deduplicationId"],
    "time": 1_658_136_855_775,
    "data": UPLINK["object"],
}


def seconds(body: bytes, media: Media | ForeignFormat, deliveries: int = 1) -> float:
    """Return the seconds of this thread's CPU time that deliveries take, one after the other."""
    settings = IdentitySettings()
    start = thread_time()
    for _ in range(deliveries):
        try:
            decoded = decode(Delivery(body, media, "coap", "coap://[fe80::1]"))
        except Undecodable:
            continue
        for event in decoded.events:
            identify(event, "coap", 0, ClockTrust.TRUSTED, settings)
    return thread_time() - start


def mapping_figures(rounds: int) -> list[Figure]:
    """Return the time of an uplink by its mapping and in our own JSON, measured in turns."""
    uplink = ForeignFormat(catalog.builtin()["chirpstack-v4"], TOPIC, {})
    forms: dict[str, tuple[bytes, Media | ForeignFormat]] = {
        "an uplink of ChirpStack, by its mapping": (json.dumps(UPLINK).encode(), uplink),
        "the same event in our JSON": (json.dumps(OWN).encode(), Media.JSON),
    }
    turns = [[seconds(*form, MAPPED) / MAPPED * 1e6 for form in forms.values()] for _ in range(rounds)]
    more = [mapped - own for mapped, own in turns]
    return [
        *(
            report.middle(name, times, "µs", bytes=len(forms[name][0]))
            for name, times in zip(forms, zip(*turns, strict=True), strict=True)
        ),
        report.middle("the mapping's own part", more, "µs", MAPPING_GOAL_US),
    ]


def main() -> int:
    """Measure every body in every format and by every mapping, print the slowest and write the JSON."""
    given = report.parse(report.parser("decode", __doc__, rounds=ROUNDS))
    bodies = slow_bodies()
    formats: dict[str, Media | ForeignFormat] = {media.name: media for media in Media}
    formats |= {name: ForeignFormat(mapping, TOPIC, {}) for name, mapping in catalog.builtin().items()}
    cases = {f"{name}, as {format_}": (bodies[name], formats[format_]) for name in bodies for format_ in formats}
    # One round over all of them after the other: a slow moment of the machine must not catch all rounds of a body.
    rounds = [[seconds(*case) for case in cases.values()] for _ in range(given.rounds)]
    least = (min(times) * 1000 for times in zip(*rounds, strict=True))
    found = sorted(zip(least, cases, (len(body) for body, _ in cases.values()), strict=True), reverse=True)
    figures = [report.against(f"longest of {len(found)}", found[0][0], "ms", GOAL_MS)]
    figures += [Figure(name, took, "ms", details={"bytes": length}) for took, name, length in found[:SHOWN]]
    figures += mapping_figures(given.rounds)
    return report.conclude("decode", figures, given, body_bytes=BODY_BYTES, rounds=given.rounds)


if __name__ == "__main__":
    sys.exit(main())
