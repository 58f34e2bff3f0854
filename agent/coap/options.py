"""Decodes the options of the events' resource: Content-Format, and `?d=`, `?id=`, `?boot=`, `?t=`, `?type=`, `?now`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.delivery import Media

NOW: Final = "now"
"""Requests the gateway's time in the answer."""
_BY_NUMBER: Final = {media.value: media for media in Media}
_JSON_FIRST_BYTES: Final = frozenset(b"{[ \t\r\n")


class QueryError(ValueError):
    """The query does not consist of distinct words with one value each."""


class Query(NamedTuple):
    """The content of the Uri-Query options."""

    words: Mapping[str, str]
    """The values for the events."""
    asks_time: bool = False


def read_query(texts: Iterable[str]) -> Query:
    """Return the Uri-Query options of a request; the decoder checks which words are known.

    Raise QueryError.
    """
    words: dict[str, str] = {}
    asks_time = False
    for text in texts:
        if text == NOW:
            asks_time = True
            continue
        word, equals, value = text.partition("=")
        if not equals:
            raise QueryError(f"query: {word[:16]!r} has no value")
        if word in words:
            raise QueryError(f"query: {word[:16]!r} twice")
        words[word] = value
    return Query(words, asks_time)


def media_of(content_format: int | None, body: bytes) -> Media | None:
    """Return the format of a body; None where the sensor named an unknown one.

    Without a Content-Format the body is JSON where it begins as a JSON object or array does, and CBOR otherwise: no
    CBOR map, array or tag begins with such a byte. SenML must be named, as it is CBOR or JSON by its first byte, too.
    """
    if content_format is not None:
        return _BY_NUMBER.get(content_format)
    return Media.JSON if body and body[0] in _JSON_FIRST_BYTES else Media.CBOR
