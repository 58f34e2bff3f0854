"""Encodes and decodes CoAP messages (RFC 7252 section 3), and the options of the resource that takes events."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.delivery import Media

CONFIRMABLE: Final = 0x00
NON_CONFIRMABLE: Final = 0x10
ACKNOWLEDGEMENT: Final = 0x20
RESET: Final = 0x30
"""The message types, at their place in the first byte."""
VERSION_1: Final = 0x40
HEADER_BYTES: Final = 4
TOKEN_BYTES_MAX: Final = 8
PAYLOAD_MARKER: Final = 0xFF

EMPTY: Final = 0x00
POST: Final = 0x02
PUT: Final = 0x03

_TYPE_BITS: Final = 0x30
_TOKEN_LENGTH_BITS: Final = 0x0F
_EXTENSION_BYTES: Final = {13: 1, 14: 2}
_EXTENSION_BASE: Final = {13: 13, 14: 269}


class MessageFormatError(ValueError):
    """The bytes are no CoAP message (section 3: a message format error): do not retry."""


def split(datagram: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a message of version 1 into header with token, options, and payload; options are not decoded.

    Raise MessageFormatError.
    """
    start = HEADER_BYTES + (datagram[0] & _TOKEN_LENGTH_BITS)
    size = len(datagram)
    if start > HEADER_BYTES + TOKEN_BYTES_MAX or start > size:
        raise MessageFormatError("invalid token length")
    try:
        end = _options_end(datagram, start)
    except IndexError:
        raise MessageFormatError("an option breaks off") from None
    if end == size:
        return datagram[:start], datagram[start:], b""
    if end > size:
        raise MessageFormatError("an option breaks off")
    if end + 1 == size:
        raise MessageFormatError("a payload marker without a payload")
    return datagram[:start], datagram[start:end], datagram[end + 1 :]


def _options_end(datagram: bytes, at: int) -> int:
    size = len(datagram)
    while at < size:
        first = datagram[at]
        if first == PAYLOAD_MARKER:
            return at
        at += 1
        if first >= 0xD0:
            at += _extension_bytes(first >> 4)
        length = first & 15
        if length > 12:
            extension = _extension_bytes(length)
            length = _EXTENSION_BASE[length] + _uint_at(datagram, at, extension)
            at += extension
        at += length
    return at


def _extension_bytes(nibble: int) -> int:
    if nibble == 15:
        raise MessageFormatError("15 is reserved in an option's first byte")
    return _EXTENSION_BYTES[nibble]


def _uint_at(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "big")


class Option(NamedTuple):
    """One option with its undecoded value."""

    number: int
    value: bytes


def read_options(raw: bytes) -> tuple[Option, ...]:
    """Decode the options that `split` has delimited."""
    options, at, number = [], 0, 0
    while at < len(raw):
        delta, length = raw[at] >> 4, raw[at] & 15
        at += 1
        if delta > 12:
            extension = _EXTENSION_BYTES[delta]
            delta = _EXTENSION_BASE[delta] + _uint_at(raw, at, extension)
            at += extension
        if length > 12:
            extension = _EXTENSION_BYTES[length]
            length = _EXTENSION_BASE[length] + _uint_at(raw, at, extension)
            at += extension
        number += delta
        options.append(Option(number, raw[at : at + length]))
        at += length
    return tuple(options)


def write_options(options: tuple[Option, ...]) -> bytes:
    """Encode options that are in the order of their numbers."""
    written, previous = bytearray(), 0
    for number, value in options:
        delta, delta_extension = _nibble(number - previous)
        length, length_extension = _nibble(len(value))
        written.append(delta << 4 | length)
        written += delta_extension + length_extension + value
        previous = number
    return bytes(written)


def _nibble(value: int) -> tuple[int, bytes]:
    if value < 13:
        return value, b""
    if value < 269:
        return 13, bytes((value - 13,))
    return 14, (value - 269).to_bytes(2, "big")


def uint(value: int) -> bytes:
    """Return an unsigned integer as an option's value (section 3.2: no leading zero byte; 0 is empty)."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def message_type(datagram: bytes) -> int:
    """Return a message's type, one of the four constants."""
    return datagram[0] & _TYPE_BITS


def join(head: bytes, options: bytes, payload: bytes) -> bytes:
    """Return the message with these parts."""
    return head + options + (bytes((PAYLOAD_MARKER,)) + payload if payload else b"")


def empty(kind: int, message_id: bytes) -> bytes:
    """Return an empty message: an ACK, or a Reset."""
    return bytes((VERSION_1 | kind, EMPTY)) + message_id


def response(kind: int, code: int, message_id: bytes, request_head: bytes, tail: bytes) -> bytes:
    """Return the response to a request with this header and token; `tail` is options and payload."""
    token_length = request_head[0] & _TOKEN_LENGTH_BITS
    return bytes((VERSION_1 | kind | token_length, code)) + message_id + request_head[HEADER_BYTES:] + tail


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
