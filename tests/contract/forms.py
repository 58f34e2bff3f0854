"""One event in each format; in CBOR with any of the encodings that RFC 8949 allows."""

import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from random import Random

from contract.cbor import INTEGER_MIN, head
from contract.event import Event, Value
from contract.record import json_text

FIELDS = ("device", "type", "id", "boot", "time", "data", "units")


def entries_of(event: Event) -> dict[str, Value]:
    """Return the map with an event's names, absent fields left out."""
    return {name: value for name in FIELDS if (value := getattr(event, name)) is not None}


def json_form(event: Event, random: Random) -> bytes:
    return json_text(_shuffled(entries_of(event), random)).encode()


def senml_json_form(event: Event, random: Random) -> bytes:
    records: list[dict[str, object]] = []
    for name, value in _shuffled(event.data or {}, random).items():
        label = _senml_label(value)
        digits = urlsafe_b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value
        records.append({"n": name, label: digits})
    records[0]["bn"] = event.device + random.choice(":/")
    records[0]["bt"] = (event.time or 0) / 1000
    return json.dumps(records).encode()


def senml_cbor_form(event: Event, random: Random) -> bytes:
    numbers = {"v": 2, "vs": 3, "vb": 4, "vd": 8}
    records: list[dict[object, object]] = []
    for name, value in _shuffled(event.data or {}, random).items():
        records.append({0: name, numbers[_senml_label(value)]: value})
    records[0] |= {-2: event.device + random.choice(":/"), -3: (event.time or 0) / 1000}
    return cbor_form(records, random)


def cbor_form(value: object, random: Random) -> bytes:
    """Encode a value in one of its many encodings."""
    if random.random() < 0.03:
        return b"\xd9\xd9\xf7" + cbor_form(value, random)
    if isinstance(value, str):
        return _string(0x60, value.encode(), random, step=len(value.encode()) or 1)
    if isinstance(value, bytes):
        return _string(0x40, value, random, step=random.randint(1, 9))
    if isinstance(value, bool) or value is None:
        return random.choice((b"\xf6", b"\xf7")) if value is None else bytes((0xF4 + value,))
    if isinstance(value, int):
        return _integer(value, random)
    if isinstance(value, float):
        return _float(value, random)
    if isinstance(value, Mapping):
        pairs = [_key(key, random) + cbor_form(item, random) for key, item in _shuffled(value, random).items()]
        return _container(0xA0, pairs, random)
    assert isinstance(value, list)
    return _container(0x80, [cbor_form(item, random) for item in value], random)


def _shuffled(entries: Mapping[object, object] | Mapping[str, Value], random: Random) -> dict[str, Value]:
    pairs = list(entries.items())
    random.shuffle(pairs)
    return dict(pairs)  # type: ignore[arg-type]  # keys stay what they are


def _key(key: object, random: Random) -> bytes:
    if isinstance(key, int):
        return _loose_head(0x00, key, random) if key >= 0 else _loose_head(0x20, -1 - key, random)
    return cbor_form(key, random)


def _senml_label(value: object) -> str:
    return {bool: "vb", str: "vs", bytes: "vd"}.get(type(value), "v")


def _loose_head(major: int, argument: int, random: Random) -> bytes:
    """Encode a head in its shortest or in a longer form."""
    widths = [(short, size) for short, size in ((24, 1), (25, 2), (26, 4), (27, 8)) if argument < 1 << 8 * size]
    if not widths or random.random() < 0.5:
        return head(major, argument)
    short, size = random.choice(widths)
    return bytes((major | short,)) + argument.to_bytes(size, "big")


def _integer(number: int, random: Random) -> bytes:
    major, argument = (0x00, number) if number >= 0 else (0x20, -1 - number)
    if random.random() < 0.2:
        return bytes((0xC2 if number >= 0 else 0xC3,)) + _string(
            0x40, argument.to_bytes(random.randint(8, 11), "big"), random, 4
        )
    # The decoder refuses the double -2^63 as an id: integers just below it are read as the same double.
    if random.random() < 0.2 and int(float(number)) == number != INTEGER_MIN:
        return _float(float(number), random)
    return _loose_head(major, argument, random)


def _float(number: float, random: Random) -> bytes:
    forms = [b"\xfb" + struct.pack(">d", number)]
    for first, code in ((b"\xfa", ">f"), (b"\xf9", ">e")):
        try:
            if struct.unpack(code, packed := struct.pack(code, number))[0] == number:
                forms.append(first + packed)
        except OverflowError:
            break
    return random.choice(forms)


def _string(major: int, raw: bytes, random: Random, step: int) -> bytes:
    if random.random() < 0.7:
        return _loose_head(major, len(raw), random) + raw
    chunks = [raw[at : at + step] for at in range(0, len(raw), step)]
    return bytes((major | 31,)) + b"".join(_loose_head(major, len(chunk), random) + chunk for chunk in chunks) + b"\xff"


def _container(major: int, parts: list[bytes], random: Random) -> bytes:
    if random.random() < 0.3:
        return bytes((major | 31,)) + b"".join(parts) + b"\xff"
    return _loose_head(major, len(parts), random) + b"".join(parts)
