"""The values that an event's data may hold, in every format.

Numbers are finite, integers within [-2^63, 2^64); keys are text, and differ after NFC; text can be encoded as UTF-8 and
has at most 30 combining marks in a row. In JSON, bytes are `{"$bytes": "<base64url>"}`, so no map may have the key
`$bytes`.
"""

import re
import unicodedata
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from math import isfinite
from typing import Final

from contract.cbor import INTEGER_END, INTEGER_MIN

DEPTH_MAX: Final = 16
"""Levels of nested maps and lists; the data itself is the first."""
VALUES_MAX: Final = 4096
"""Values in one event's data, at all levels, including maps and lists."""
BYTES_KEY: Final = "$bytes"
MARKS_MAX: Final = 30
"""Combining marks in a row, as in the Stream-Safe Text Format (UAX 15); NFC takes time quadratic in their number."""
NFC_SHRINK_MAX: Final = 4
"""The factor by which NFC shortens a text at most, since no character decomposes into more characters."""
_MARKS_OF_CLASS_0: Final = ("\u0f73", "\u0f75", "\u0f81")
"""Characters of combining class 0 that decompose into marks only."""
_TWO_MARKS: Final = "\u0f71\u0f72"

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")


class InvalidValue(ValueError):  # noqa: N818  # the name states the problem
    """An event cannot hold the value; sending it again does not help."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A placeholder for a value that was decoded and that no event can hold; only the event around it is refused."""

    reason: str


def check_data(data: object) -> None:
    """Raise InvalidValue unless `data` is a map that all later steps can encode."""
    if type(data) is not dict:
        raise InvalidValue(data.reason if isinstance(data, Invalid) else "data is not a map")
    if _check_map(data, DEPTH_MAX) > VALUES_MAX:
        raise InvalidValue(f"data has more than {VALUES_MAX} values")


def check_text(text: str) -> None:
    """Raise InvalidValue for text with a lone surrogate, which UTF-8 cannot encode, or with too many marks in a row."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("text holds a lone surrogate") from None
    if len(text) > MARKS_MAX // len(_TWO_MARKS) and _marks_in_a_row(text) > MARKS_MAX:
        raise InvalidValue(f"text has more than {MARKS_MAX} combining marks in a row")


def decode_base64url(text: str) -> bytes:
    """Decode base64url with or without its padding; raise InvalidValue on anything else."""
    digits = text.rstrip("=")
    if not _BASE64URL.fullmatch(text) or len(digits) % 4 == 1 or (text != digits and len(text) % 4):
        raise InvalidValue("text is not base64url")
    return urlsafe_b64decode(digits + "=" * (-len(digits) % 4))


def _marks_in_a_row(text: str) -> int:
    """Return the length of the longest run of combining marks, in time linear in the text."""
    for mark in _MARKS_OF_CLASS_0:
        text = text.replace(mark, _TWO_MARKS)
    return max(map(len, bytes(map(unicodedata.combining, text)).split(b"\0")))


def _check_map(entries: dict[object, object], depth: int) -> int:
    """Check the entries and return the number of values; tests exact types, since this runs for each event."""
    if not depth:
        raise InvalidValue(f"data is nested deeper than {DEPTH_MAX} levels")
    count = len(entries)
    ascii_only = True
    for key, value in entries.items():
        if type(key) is not str:
            raise InvalidValue("a key is not text")
        if not key.isascii():
            ascii_only = False
            check_text(key)
        kind = type(value)
        if kind is float:
            if not isfinite(value):  # type: ignore[arg-type]  # kind is its type
                raise InvalidValue("a number is not finite")
        else:
            count += _check_value(value, depth)
    if BYTES_KEY in entries:
        raise InvalidValue(f"a map has the key {BYTES_KEY} and is not bytes")
    if not ascii_only and len(entries) > 1:
        _check_keys_differ(entries)
    return count


def _check_keys_differ(entries: dict[object, object]) -> None:
    if len({unicodedata.normalize("NFC", str(key)) for key in entries}) < len(entries):
        raise InvalidValue("two keys of a map are equal after NFC")


def _check_list(items: list[object], depth: int) -> int:
    if not depth:
        raise InvalidValue(f"data is nested deeper than {DEPTH_MAX} levels")
    count = len(items)
    for item in items:
        count += _check_value(item, depth)
    return count


def _check_value(value: object, depth: int) -> int:
    """Check one value and return the number of values inside it."""
    kind = type(value)
    if kind is int:
        if not INTEGER_MIN <= value < INTEGER_END:  # type: ignore[operator]  # kind is its type
            raise InvalidValue("an integer is outside [-2^63, 2^64)")
    elif kind is float:
        if not isfinite(value):  # type: ignore[arg-type]  # kind is its type
            raise InvalidValue("a number is not finite")
    elif kind is str:
        check_text(value)  # type: ignore[arg-type]  # kind is its type
    elif kind is dict:
        return _check_map(value, depth - 1)  # type: ignore[arg-type]  # kind is its type
    elif kind is list:
        return _check_list(value, depth - 1)  # type: ignore[arg-type]  # kind is its type
    elif isinstance(value, Invalid):
        raise InvalidValue(value.reason)
    elif value is not None and kind is not bool and kind is not bytes:
        raise InvalidValue(f"{kind.__name__} has no place in an event")
    return 0
