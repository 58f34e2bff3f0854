"""Bodies that are made to be slow: each as large as one delivery may be, and aimed at one step of decoding."""

import json
from collections.abc import Iterator, Mapping

BODY_BYTES = 1 << 16
EVENTS = 512
"""Events in one body, as many as it may hold."""
_MARKS = "\u0323\u0300"
"""Two combining marks in the order that NFC has to exchange."""


def slow_bodies(size: int = BODY_BYTES) -> Mapping[str, bytes]:
    """Return the bodies by their names, each of at most `size` bytes."""
    bodies = {**_cbor(size), **_foreign(size), **_refused(size), **_json(size), **_marks(size), **_senml(size)}
    bodies |= _events(size)
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


def _foreign(size: int) -> Mapping[str, bytes]:
    """Return CBOR bodies of tags and simple values that general decoders interpret and events do not allow."""
    items = (size - 64) // 4
    inside = b"\xa1\x64data\xa1\x61x\x9f"
    return {
        "shared references": inside + b"\xd8\x1c\x80" + b"\xd8\x1d\x00" * min(items, 8000) + b"\xff",
        "references to all before": b"\x9f" + b"\xd8\x1c\x82\xd8\x1d\x00\xd8\x1d\x00" * (items // 3) + b"\xff",
        "string references": b"\xd9\x01\x00" + inside + b"\x63abc" + b"\xd8\x19\x00" * min(items, 8000) + b"\xff",
        "dates": inside + b"\xc1\x18\x2a" * min(items, 8000) + b"\xff",
        "patterns": inside + b"\xd8\x23\x61(" * min(items, 8000) + b"\xff",
        "sets": inside + b"\xd9\x01\x02\x80" * min(items, 8000) + b"\xff",
        "self-described": b"\xd9\xd9\xf7" * ((size - 1) // 3) + b"\xa0",
        "undefined": inside + b"\xf7" * min(4 * items, 16_000) + b"\xff",
        "simple values": inside + b"\xe0" * min(4 * items, 16_000) + b"\xff",
    }


def _refused(size: int) -> Mapping[str, bytes]:
    """Return CBOR bodies that are well-formed and have something wrong in each event, or at their end."""
    events = min(EVENTS, size // 24)
    fill = b"\0" * min((size - 64) // 2, 8000)
    colliding = b"\xbf" + b"".join(colliding_keys(min(3000, (size - 64) // 20))) + b"\xff"
    return {
        "text that is no UTF-8 in each event": b"\x9f" + b"\xa1\x64data\xa1\x61a\x61\xff" * events + b"\xff",
        "a key twice in each event": b"\x9f" + b"\xa1\x64data\xa2\x61a\0\x61a\0" * events + b"\xff",
        "a wrong key in each event": b"\x9f" + b"\xa2\x62id\1\0\0" * events + b"\xff",
        "text that is no UTF-8 at the end": b"\xa1\x64data\xa1\x61a\x9f" + fill + b"\x61\xff\xff",
        "a bignum in each record": b"\x9f" + b"\xa2\x02\xc2\x41\1\x06\xc2\x41\1" * events + b"\xff",
        "text that is no UTF-8 in each record": b"\x9f" + b"\xa2\x03\x61\xff\x06\x00" * events + b"\xff",
        "colliding keys": colliding,
        "colliding keys in an array": b"\x81" + colliding,
        "colliding keys in data": b"\x81\xa1\x64data" + colliding,
    }


def colliding_keys(count: int) -> Iterator[bytes]:
    """Yield map entries whose keys are pairs of integers with one and the same hash, as CPython computes it."""
    first_prime, second_prime, seed, modulus = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x27D4EB2F165667C5, 1 << 64
    number = 0
    while count:
        number += 1
        mixed = (seed + number * second_prime) % modulus
        mixed = (mixed << 31 | mixed >> 33) % modulus * first_prime
        other = (1 - mixed) * pow(second_prime, -1, modulus) % modulus
        if other < (1 << 61) - 1:  # up to there an integer is its own hash
            count -= 1
            yield b"\x82\x1a" + number.to_bytes(4, "big") + b"\x1b" + other.to_bytes(8, "big") + b"\0"


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
    """Return packs of many records, some under a long base name."""
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
    """Return bodies of many events, valid and invalid."""
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
