"""The compiled modules do with any bytes what the pure ones do: two processes, the same input, output compared."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from random import Random

import cbor2
import pytest

from agent.delivery import Media
from benchmarks.bodies import slow_bodies
from tests.support.commands import output_of

pytestmark = pytest.mark.heavy
BODIES = 20_000
NASTY_BYTES = 4_096
DRIVER = Path(__file__).with_name("driver.py")
EVENT: dict[str, object] = {
    "device": "urn:dev:mac:00158d0001a2b3c4",
    "type": "climate",
    "id": 17,
    "boot": "b2",
    "time": 1_763_706_012_345,
    "data": {"t": 21.5, "n": [1, -0.0, None, True, {"\u00e9": "e\u0301"}], "big": (1 << 64) - 1, "f": 1e300},
    "units": {"t": "Cel"},
}
PACK: list[dict[str, object]] = [
    {
        "bn": "urn:dev:ow:10e2073a0108006:",
        "bt": 1.276020076e9,
        "bu": "A",
        "bver": 5,
        "n": "voltage",
        "u": "V",
        "v": 120.1,
    },
    {"n": "current", "t": -5, "v": 1.2},
    {"n": "open", "vb": True, "t": 1},
]
ZIGBEE: dict[str, object] = {"temperature": 21.5, "battery": None, "linkquality": 120, "last_seen": 1_763_706_012_345}
LABELS = {"bn": -2, "bt": -3, "bu": -4, "bver": -1, "n": 0, "u": 1, "v": 2, "vb": 4, "t": 6}
SEEDS: dict[str, tuple[bytes, ...]] = {
    "JSON": (json.dumps(EVENT).encode(), json.dumps([EVENT, {"id": "x"}, {"id": 1.5}]).encode(), b"{}"),
    "CBOR": (cbor2.dumps(EVENT), cbor2.dumps([EVENT, {"id": 2, "data": {"b": b"\0\xff"}}, {1: 2}]), b"\xa0"),
    "SENML_JSON": (json.dumps(PACK).encode(),),
    "SENML_CBOR": (cbor2.dumps([{LABELS[name]: value for name, value in record.items()} for record in PACK]),),
    "ZIGBEE2MQTT": (json.dumps(ZIGBEE).encode(),),
}
QUERIES: tuple[dict[str, str], ...] = ({}, {}, {"d": "urn:x", "id": "007"}, {"t": "5", "boot": "1", "type": "alarm"})
DATAGRAMS = (
    bytes.fromhex("48021234") + b"tokentok" + b"\xb6events\x11\x32\x4fd=urn:dev:ops:1\xff{}",
    bytes.fromhex("40021234") + b"\xb1e\x11\x3c\xff\xa0",
    bytes.fromhex("41451234ff"),
)
PACKETS = (
    b"\x32\x10\x00\x05a/b/c\x00\x07\x00" + b'{"id"}',
    b"\x30\x09\x00\x03a/b\x00abc",
    b"\x20\x03\x00\x00\x00\xd0\x00",
    b"\x90\x04\x00\x01\x00\x01",
)
REQUESTS = (
    b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /api/v1/events HTTP/1.1\r\nhost:g\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
)
BYTES = {"coap": DATAGRAMS, "mqtt": PACKETS, "http": REQUESTS}
"""Of what is not the body of a delivery."""


def mutate(data: bytes, chance: Random) -> bytes:
    """Return the bytes with a few of them changed, left out, repeated or exchanged."""
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        at, end = sorted((chance.randrange(len(changed) + 1), chance.randrange(len(changed) + 1)))
        end = min(end, at + chance.choice((1, 1, 2, 8, 400)))
        piece = bytes(changed[at:end])
        changed[at:end] = chance.choice((b"", piece * 2, chance.randbytes(len(piece)), bytes(reversed(piece))))
    return bytes(changed)


def lines(chance: Random) -> Iterator[list[object]]:
    for body in slow_bodies(NASTY_BYTES).values():
        for media in Media:
            yield ["body", body.hex(), media.name, "coap", {}]
    for _ in range(BODIES):
        kind = chance.choice((*SEEDS, *BYTES))
        if kind in SEEDS:
            via = "zigbee2mqtt" if kind == Media.ZIGBEE2MQTT.name else chance.choice(("coap", "http", "mqtt"))
            yield ["body", mutate(chance.choice(SEEDS[kind]), chance).hex(), kind, via, chance.choice(QUERIES)]
        else:
            yield [kind, mutate(chance.choice(BYTES[kind]), chance).hex()]


def run(python: Path, text: str, sources: Path | None = None) -> list[str]:
    """Return the driver's output; `sources` come before what is installed."""
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(sources or "")}
    return output_of(python, DRIVER, text=text, environment=environment).splitlines()


def test_both_forms_do_the_same_with_the_same_bytes(compiled_python: Path, pure_sources: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    given = [json.dumps(line) for line in lines(Random(seed))]
    text = "\n".join(given) + "\n"
    form, *compiled = run(compiled_python, text)
    pure_form, *pure = run(compiled_python, text, pure_sources)
    assert (form, pure_form) == ("compiled", "pure")
    assert len(compiled) == len(pure) == len(given)
    for line, one, other in zip(given, compiled, pure, strict=True):
        assert one == other, line
    candidates = sum("Candidate(" in one for one in pure)
    print(f"bodies={len(given)} with_events={candidates}")
    assert candidates > BODIES // 10
