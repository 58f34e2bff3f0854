"""Request bodies that are slow to decode: each of the largest allowed size, and aimed at one step of decoding."""

from __future__ import annotations

import json
from collections.abc import Mapping

BODY_BYTES = 1 << 16
EVENTS = 1024
"""Largest number of events in one body."""
_MARKS = "\u0323\u0300"
"""Two combining marks in an order that NFC changes."""


def nasty_bodies(size: int = BODY_BYTES) -> Mapping[str, bytes]:
    """Return the bodies by name, none of them longer than `size` bytes."""
    bodies = {**_cbor(size), **_json(size), **_marks(size), **_senml(size), **_events(size)}
    return {name: body[:size] for name, body in bodies.items()}


def _cbor(size: int) -> Mapping[str, bytes]:
    inner = size - 256
    wide = inner.to_bytes(4, "big")
    return {
        "arrays": b"\x81" * size,
        "indefinite arrays": b"\x9f" * size,
        "indefinite maps": b"\xbf" * size,
        "tags": b"\xc2" * size,
        "zeros": b"\x9a" + wide + b"\0" * inner,
        "maps in data": b"\xa1\x64data\xa1\x61x\x9a" + (inner // 4).to_bytes(4, "big") + b"\xa1\x61a\0" * (inner // 4),
        "few maps in data": b"\xa1\x64data\xa1\x61x\x99\x0f\x00" + b"\xa1\x61a\0" * 0x0F00,
        "few arrays in data": b"\xa1\x64data\xa1\x61x\x99\x1f\x00" + b"\x81\x00" * 0x1F00,
        "few tags in data": b"\xa1\x64data\xa1\x61x\x99\x1f\x00" + b"\xc2\x40" * 0x1F00,
        "indefinite arrays in data": b"\xa1\x64data\xa1\x61x\x9f" + b"\x9f\xff" * 0x3F00 + b"\xff",
        "empty arrays in data": b"\xa1\x64data\xa1\x61x\x9a" + wide + b"\x80" * inner,
        "zeros in data": b"\xa1\x64data\xa1\x61x\x9a" + wide + b"\0" * inner,
        "a long array": b"\x9b\x10" + b"\0" * 7,
        "a long map": b"\xbb\x10" + b"\0" * 7,
        "a long text": b"\x7b\x10" + b"\0" * 7,
        "long bytes": b"\x5b\x10" + b"\0" * 7 + b"\0" * 1000,
        "empty chunks": b"\x5f" + b"\x40" * size,
        "chunks of four texts": b"\xa1\x64data\xa1\x61x\x84" + 4 * (b"\x7f" + b"\x60" * (inner // 4) + b"\xff"),
        "text chunks": b"\xa1\x62id\x7f" + b"\x61a" * (inner // 2) + b"\xff",
        "a great bignum": b"\xa1\x62id\xc2\x5a" + wide + b"\xff" * inner,
        "keys": b"\xb9\x27\x10" + b"".join(b"\x64%04x\0" % number for number in range(10_000)),
        "one key": b"\xb9\x27\x10" + b"\x61a\0" * 10_000,
        "integer keys": b"\xb9\x1f\x40" + b"".join(b"\x1b%s\0" % (at << 32).to_bytes(8, "big") for at in range(8000)),
    }


def _json(size: int) -> Mapping[str, bytes]:
    inner = size - 64
    return {
        "json arrays": b"[" * size,
        "json maps": b'{"a":' * (size // 5),
        "json nesting": b"[" + b",".join([b"[" * 400 + b"]" * 400] * (inner // 801)) + b"]",
        "json digits": b'{"id":' + b"9" * inner + b"}",
        "json fraction": b'{"id":0.' + b"9" * inner + b"}",
        "json exponent": b'{"id":' + b"9" * (inner // 2) + b"e-" + b"9" * (inner // 2) + b"}",
        "json numbers": b'{"data":{"a":[' + b",".join([b"0.3e-307"] * (inner // 9)) + b"]}}",
        "json zeros": b"[" + b"0," * (inner // 2) + b"0]",
        "json text": b'{"id":"' + b"x" * inner + b'"}',
        "json escapes": b'{"data":{"a":"' + b"\\u0007" * (inner // 6) + b'"}}',
        "json spaces": b" " * size,
        "json spaces in an array": b"[{}," + b" " * inner + b"{}, 1]",
        "json keys": b"{" + b",".join(b'"%d":0' % number for number in range(inner // 9)) + b"}",
        "json keys in data": b'{"data":{' + b",".join(b'"%d":0' % number for number in range(4096)) + b"}}",
        "json base64": b'{"data":{"a":{"$bytes":"' + b"_" * inner + b'"}}}',
    }


def _marks(size: int) -> Mapping[str, bytes]:
    chain = _MARKS * ((size - 256) // len(_MARKS.encode()))
    hidden = "\u0f73" * ((size - 256) // 3)
    allowed = _pieces("a" + "\u0300" * 15 + "\u0323" * 15, size - 256)
    hangul = _pieces("\u1100\u1161\u11a8", size - 256)
    keys = ",".join(f'"{number}{_MARKS * 14}":1' for number in range((size - 256) // 66))
    bodies = {
        f"{kind} in {field}": f'{{"device":"d","{field}":{json.dumps(value, ensure_ascii=False)}}}'
        for kind, text in {"marks": chain, "hidden marks": hidden, "marks in groups": allowed, "jamo": hangul}.items()
        for field, value in {"id": text, "type": text, "data": {"a": text}, "units": {text: "m"}}.items()
    }
    bodies["keys of marks"] = f'{{"device":"d","id":1,"data":{{{keys}}}}}'
    bodies["keys that NFC makes equal"] = '{"id":1,"data":{"\u00e9":1,"e\u0301":2}}'
    return {name: body.encode() for name, body in bodies.items()}


def _senml(size: int) -> Mapping[str, bytes]:
    """Return packs whose records repeat a long base name."""
    half = size // 2
    times = range(min(EVENTS - 1, (half - 64) // 17))
    wrong, right = (",".join(f'{{"{field}":5,"t":{number}}}' for number in times) for field in ("vb", "v"))
    name = json.dumps("\u00e9" * (half // 2), ensure_ascii=False)
    written = "\x07" * half
    labels = b"".join(b"\xa2\x04\x05\x06\x19" + number.to_bytes(2, "big") for number in times)
    same = ",".join([f'{{"v":1,"n":"{_MARKS * 15}"}}'] * (size // 90))
    return {
        "senml records": b"[" + b",".join([b'{"n":"a","v":1}'] * EVENTS) + b"]",
        "senml records in cbor": b"\x99\x03\xff" + b"\xa1\x02\x01" * (EVENTS - 1),
        "senml with a long base name": f'[{{"bn":{name},"n":"a","vb":5,"t":0}},{wrong}]'.encode(),
        "senml with a long base name in valid records": f'[{{"bn":{name}}},{right}]'.encode(),
        "senml with a base name of controls": (
            b"\x9f\xa3\x21\x7a" + half.to_bytes(4, "big") + written.encode() + b"\x04\x05\x06\x00" + labels + b"\xff"
        ),
        "senml names of marks": f"[{same}]".encode(),
        "senml base names": b"[" + b",".join([b'{"bn":"' + b"x" * 250 + b'","n":1}'] * (size // 270)) + b"]",
    }


def _events(size: int) -> Mapping[str, bytes]:
    """Return bodies of many valid and invalid events."""
    count = min(EVENTS, (size - 2) // 12)
    return {
        "events": b"[" + b",".join(b'{"id":%d}' % number for number in range(count)) + b"]",
        "equal events": b"[" + b",".join([b"{}"] * EVENTS) + b"]",
        "wrong events": b"[" + b",".join([b'{"id":1.5}'] * count) + b"]",
        "wrong devices": b"[" + b",".join([b'{"device":""}'] * count) + b"]",
        "events in cbor": b"\x99\x04\x00" + b"".join(b"\xa1\x62id\x19" + at.to_bytes(2, "big") for at in range(EVENTS)),
        "empty events in cbor": b"\x99\x04\x00" + b"\xa0" * EVENTS,
        "wrong events in cbor": b"\x99\x04\x00" + b"\x80" * EVENTS,
    }


def _pieces(piece: str, size: int) -> str:
    return piece * (size // len(piece.encode()))
