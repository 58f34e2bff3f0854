"""Deterministic CBOR, the bytes under every fingerprint.

RFC 8949 section 4.2.1 (core deterministic encoding) with the numeric reduction of dCBOR: a float with an
integral value in [-2^63, 2^64) is encoded as that integer, other floats in the shortest form that keeps
the value, text in NFC, and map entries whose value is null are left out at every depth.
"""

import struct
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from operator import itemgetter
from typing import Final

INTEGER_MIN: Final = -(1 << 63)
INTEGER_END: Final = 1 << 64

_MAPS_KNOWN_MAX: Final = 512
_KEYS_CHARACTERS_MAX: Final = 128
"""Bounds of the cache of sorted keys: the number of maps, and the characters of one map's keys together."""

_SHORT_HEADS: Final = [bytes([byte]) for byte in range(256)]
_FALSE: Final = b"\xf4"
_TRUE: Final = b"\xf5"
_NULL: Final = b"\xf6"
_second: Final = itemgetter(1)
_pack_half, _pack_single, _pack_double = struct.Struct(">e").pack, struct.Struct(">f").pack, struct.Struct(">d").pack
_unpack_half, _unpack_single = struct.Struct(">e").unpack, struct.Struct(">f").unpack


def encode_text(text: str) -> bytes:
    """Encode text in NFC; raise ValueError (UnicodeEncodeError) on a lone surrogate."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    raw = text.encode()
    return head(0x60, len(raw)) + raw


def encode_integer(number: int) -> bytes:
    """Encode an integer in [-2^63, 2^64)."""
    if number >= 0:
        if number >= INTEGER_END:
            raise ValueError(f"integer {number} is above 2^64 - 1")
        return head(0x00, number)
    if number < INTEGER_MIN:
        raise ValueError(f"integer {number} is below -2^63")
    return head(0x20, -1 - number)


def encode_map(entries: Mapping[str, object]) -> bytes:
    """Encode a map, its entries sorted by their encoded keys, without those whose value is null.

    Raise TypeError or ValueError where an event cannot hold a value.
    """
    parts: list[bytes] = []
    _encode_map_into(parts, entries)
    return b"".join(parts)


def head(major: int, argument: int) -> bytes:
    """Encode a data item's head in its shortest form (RFC 8949 section 3); `major` is the type's byte (0x60: text)."""
    if argument < 24:
        return _SHORT_HEADS[major | argument]
    if argument < 0x100:
        return bytes((major | 24, argument))
    if argument < 0x10000:
        return _SHORT_HEADS[major | 25] + argument.to_bytes(2, "big")
    if argument < 0x1_0000_0000:
        return _SHORT_HEADS[major | 26] + argument.to_bytes(4, "big")
    return _SHORT_HEADS[major | 27] + argument.to_bytes(8, "big")


def encode_into(parts: list[bytes], value: object) -> None:
    """Append one value's bytes; tests exact types first, since this runs for each value of each event."""
    kind = type(value)
    if kind is float:
        parts.append(_encode_float(value))
    elif kind is int:
        parts.append(encode_integer(value))  # type: ignore[arg-type]  # kind is its type
    elif kind is dict:
        _encode_map_into(parts, value)  # type: ignore[arg-type]  # kind is its type
    elif isinstance(value, str):
        parts.append(encode_text(value))
    elif isinstance(value, bool):
        parts.append(_TRUE if value else _FALSE)
    elif value is None:
        parts.append(_NULL)
    elif isinstance(value, bytes):
        parts.append(head(0x40, len(value)) + value)
    elif isinstance(value, float):
        parts.append(_encode_float(value))
    elif isinstance(value, int):
        parts.append(encode_integer(value))
    else:
        _encode_container_into(parts, value)


def _encode_container_into(parts: list[bytes], value: object) -> None:
    if isinstance(value, dict | Mapping):  # dict first: the check of an abstract class is slow
        _encode_map_into(parts, value)
    elif isinstance(value, list | tuple):
        parts.append(head(0x80, len(value)))
        for item in value:
            encode_into(parts, item)
    else:
        raise TypeError(f"{type(value).__name__} has no place in an event")


def _encode_map_into(parts: list[bytes], entries: Mapping[str, object]) -> None:
    names = tuple(entries)
    order = _order_known if len("".join(names)) <= _KEYS_CHARACTERS_MAX else _order
    keys = order(names if None not in entries.values() else tuple(name for name in names if entries[name] is not None))
    parts.append(head(0xA0, len(keys)))
    for name, key in keys:
        parts.append(key)
        encode_into(parts, entries[name])


def _order(names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    """Return a map's keys in the order of their encoded bytes, each with these bytes."""
    keys = sorted([(name, encode_text(name)) for name in names], key=_second)
    if any(one[1] == other[1] for one, other in pairwise(keys)):
        raise ValueError("two keys of a map are equal after NFC")
    return tuple(keys)


_order_known: Final = lru_cache(maxsize=_MAPS_KNOWN_MAX)(_order)
"""Cached, since a sensor's keys are the same in each of its events."""


@lru_cache(maxsize=4096)  # a sensor's readings repeat
def _encode_float(number: float) -> bytes:
    if not isfinite(number):
        raise ValueError(f"{number} is not a number that can be kept")
    if number.is_integer() and INTEGER_MIN <= number < INTEGER_END:
        return encode_integer(int(number))
    try:
        if _unpack_half(half := _pack_half(number))[0] == number:
            return b"\xf9" + half
    except OverflowError:
        pass
    try:
        if _unpack_single(single := _pack_single(number))[0] == number:
            return b"\xfa" + single
    except OverflowError:
        pass
    return b"\xfb" + _pack_double(number)
