"""Reads JSON (RFC 8259) under the rules for values of an event.

A value that is readable but that no event may hold (NaN, a map with a duplicate key) becomes `Invalid`, which refuses
only the event around it.
"""

import re
from itertools import accumulate, count
from json import JSONDecodeError, JSONDecoder
from operator import sub
from typing import Final

from agent.decode.decoded import Undecodable
from contract.cbor import INTEGER_END, INTEGER_MIN
from contract.values import BYTES_KEY, Invalid, InvalidValue, decode_base64url

NESTING_MAX: Final = 512
"""Levels of arrays and maps that are read at all; an event may have far fewer (contract.values.DEPTH_MAX).

The interpreter has a limit about twice as high, which depends on the stack: on the protocol, and on the form that runs.
"""

_WHITESPACE: Final = " \t\n\r"
_SPACES: Final = re.compile(f"[{_WHITESPACE}]*")
_STRING: Final = re.compile(r'(?s)"(?:[^"\\]++|\\.)*+"?')
"""Finds strings, which may hold brackets, in time linear in the text, whatever it is."""
_BRACKETS: Final = b"[{]}"
_STEPS: Final = bytes.maketrans(_BRACKETS, b"\2\2\0\0")
_OTHERS: Final = bytes(set(range(256)) - set(_BRACKETS))
_INTEGER_CHARACTERS_MAX: Final = 20
"""Of an integer in [-2^63, 2^64), its sign included."""
_ALWAYS_INTEGER_CHARACTERS_MAX: Final = 18
"""Up to this length, each integer is in that range."""
_BYTES_KEY: Final = BYTES_KEY.encode()


def read(body: bytes) -> object:
    """Return the value of a body; raise Undecodable."""
    return _read(body, _DECODER)


def read_foreign(body: bytes) -> object:
    """Return the value of another program's body, with the last value of a repeated key; raise Undecodable."""
    return _read(body, _DECODER if _BYTES_KEY in body else _FOREIGN_DECODER)


def _read(body: bytes, decoder: JSONDecoder) -> object:
    text = _text(body).rstrip(_WHITESPACE)
    if len(text) > NESTING_MAX and text.count("[") + text.count("{") > NESTING_MAX:
        _check_nesting(text)
    value, end = _read_at(text, len(text) - len(text.lstrip(_WHITESPACE)), decoder)
    if end != len(text):
        raise Undecodable(f"JSON: more text after the value, at character {end}")
    return value


def split(body: bytes) -> list[bytes]:
    """Cut an array that `read` accepts into its items, each as it was sent."""
    text = _text(body)
    position = skip(text, skip(text, 0) + 1)
    pieces: list[bytes] = []
    while text[position] != "]":
        _, end = _read_at(text, position, _DECODER)
        pieces.append(text[position:end].encode())
        position = skip(text, end)
        if text[position] == ",":
            position = skip(text, position + 1)
    return pieces


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"JSON: not UTF-8 at byte {error.start}") from None


def skip(text: str, position: int) -> int:
    """Return the position after white space."""
    spaces = _SPACES.match(text, position)
    assert spaces is not None  # it matches nothing, too
    return spaces.end()


def _read_at(text: str, position: int, decoder: JSONDecoder) -> tuple[object, int]:
    try:
        return decoder.raw_decode(text, position)
    except JSONDecodeError as error:
        raise Undecodable(f"JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from None


def _check_nesting(text: str) -> None:
    """Raise Undecodable where the text has more than NESTING_MAX levels."""
    steps = _STRING.sub("", text).encode().translate(_STEPS, _OTHERS)  # 2 for each opening bracket
    if max(map(sub, accumulate(steps), count(1)), default=0) > NESTING_MAX:
        raise Undecodable(f"JSON: nested deeper than {NESTING_MAX} levels")


def _map(pairs: list[tuple[str, object]]) -> object:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        return Invalid("a map has a key twice")
    if BYTES_KEY in entries and len(entries) == 1:
        return _bytes(entries[BYTES_KEY])
    return entries


def _bytes(digits: object) -> object:
    if not isinstance(digits, str):
        return Invalid(f"{BYTES_KEY} is not text")
    try:
        return decode_base64url(digits)
    except InvalidValue:
        return Invalid(f"{BYTES_KEY} is not base64url")


def _integer(literal: str) -> int | float:
    """Read an integer literal; outside [-2^63, 2^64) it is read as a double."""
    if len(literal) <= _ALWAYS_INTEGER_CHARACTERS_MAX:
        return int(literal)
    if len(literal) <= _INTEGER_CHARACTERS_MAX and INTEGER_MIN <= (number := int(literal)) < INTEGER_END:
        return number
    return float(literal)


def _constant(literal: str) -> Invalid:
    return Invalid(f"{literal} is not a number in JSON")


_DECODER: Final = JSONDecoder(object_pairs_hook=_map, parse_int=_integer, parse_constant=_constant)
_FOREIGN_DECODER: Final = JSONDecoder(parse_int=_integer, parse_constant=_constant)
"""Without a call for each map, which takes a third of the time of a body with many."""
