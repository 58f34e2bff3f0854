"""Decodes the options of a plain POST of events, which the fast path serves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from agent.coap.message import read_options
from agent.coap.options import QueryError, read_query

PATHS: Final[tuple[str, ...]] = ("events", "e")
URI_HOST: Final = 3
URI_PORT: Final = 7
URI_PATH: Final = 11
CONTENT_FORMAT: Final = 12
URI_QUERY: Final = 15
ACCEPT: Final = 17
NO_RESPONSE: Final = 258

PLAIN_OPTIONS_BYTES_MAX: Final = 256
"""Longer ones go to aiocoap; bounds the cache."""
_OPTIONS_KEPT: Final = 1_024
_PATHS: Final = frozenset(path.encode() for path in PATHS)
_LEAP: Final = 0xD0
"""From here on, an option's first byte has an extended delta (section 3.1)."""


class PlainPost(NamedTuple):
    """The options of a plain POST."""

    content_format: int | None
    query: Mapping[str, str]
    asks_time: bool


def read_plain_post(raw: bytes) -> PlainPost | None:
    """Return a plain POST's options; None for any other request, which goes to aiocoap.

    The options before a Request-Tag are cached without it, since it differs from request to request.
    """
    end, number = _before_a_leap(raw)
    if end == len(raw):
        return _read(raw)
    for option in read_options(raw[end:]):
        if _changes_the_answer(number + option.number):
            return None
    return _read(raw[:end])


def _before_a_leap(raw: bytes) -> tuple[int, int]:
    """Return the end and the last number of the options before the first whose number is greater by 13 or more."""
    at = number = 0
    while at < len(raw) and raw[at] < _LEAP:
        number += raw[at] >> 4
        length = raw[at] & 15
        at += 1
        if length > 12:  # `split` has checked that the options are complete
            extended = length - 12
            length = int.from_bytes(raw[at : at + extended], "big") + (13 if extended == 1 else 269)
            at += extended
        at += length
    return at, number


@lru_cache(maxsize=_OPTIONS_KEPT)
def _read(raw: bytes) -> PlainPost | None:
    """Return the options of a POST, None where aiocoap has to read them.

    Uri-Host and Uri-Port are ignored, since they select among virtual hosts, and there is one only; Accept, since an
    answer has one format at most. Elective options are ignored (RFC 7252 section 5.4.1), such as the Request-Tag that
    libcoap adds to each POST, which matters to Block1 only (RFC 9175 section 3), and Observe, Size1, Hop-Limit, Echo.
    """
    singles: dict[int, bytes] = {}
    queries = []
    for number, value in read_options(raw):
        if number == URI_QUERY:
            queries.append(value)
        elif not _changes_the_answer(number):
            continue
        elif number in singles or not _understood(number, value):
            return None
        else:
            singles[number] = value
    if URI_PATH not in singles:
        return None
    content_format = singles.get(CONTENT_FORMAT)
    try:
        query = read_query(value.decode() for value in queries)
    except (QueryError, UnicodeDecodeError):
        return None
    media = None if content_format is None else int.from_bytes(content_format, "big")
    return PlainPost(media, query.words, query.asks_time)


def _changes_the_answer(number: int) -> bool:
    """Whether an option may not be ignored: a critical one, Content-Format, No-Response."""
    return number & 1 != 0 or number in (CONTENT_FORMAT, NO_RESPONSE)


def _understood(number: int, value: bytes) -> bool:
    if number == URI_PATH:
        return value in _PATHS
    if number in (CONTENT_FORMAT, URI_PORT, ACCEPT):
        return len(value) <= 2
    return number == URI_HOST and 0 < len(value) <= 255 and value.isascii()
