"""The format of a body, from its Content-Format or, where that is absent, from its first byte."""

from __future__ import annotations

from agent.delivery import Media

_BY_NUMBER = {media.value: media for media in Media}
_JSON_FIRST_BYTES = frozenset(b"{[ \t\r\n")


def media_of(content_format: int | None, body: bytes) -> Media | None:
    """Name the format; None where the sensor named one that we do not know.

    Without a Content-Format the body is JSON where it begins as a JSON object or array does, and CBOR otherwise: no
    CBOR map, array or tag begins with such a byte. SenML must be named, as it is CBOR or JSON by its first byte, too.
    """
    if content_format is not None:
        return _BY_NUMBER.get(content_format)
    return Media.JSON if body and body[0] in _JSON_FIRST_BYTES else Media.CBOR
