"""The CoAP messages that a sensor needs (RFC 7252 section 3), encoded and parsed without a library.

A library would hide the datagrams that the simulators lose, repeat and delay, and takes too much time per sensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CON, NON, ACK, RST = range(4)
EMPTY = 0x00
POST = 0x02
_VERSION = 0x40
CONTINUE = 0x5F
"""2.31 Continue: the block was received, the next may follow (RFC 7959 section 2.9.1)."""
_URI_PATH, _CONTENT_FORMAT, _MAX_AGE, _URI_QUERY, _BLOCK1 = 11, 12, 14, 15, 27
_MAX_AGE_DEFAULT = 60
_PAYLOAD_MARKER = b"\xff"


@dataclass(frozen=True, slots=True)
class Request:
    """A POST to /events without Message ID and Token."""

    payload: bytes
    content_format: int
    query: tuple[str, ...] = ()

    def datagram(self, message_id: int, token: bytes, kind: int = CON) -> bytes:
        """Encode the message, confirmable or not."""
        return self._built(message_id, token, kind, self.payload, None)

    def blocks(self, size: int) -> Sequence[Block]:
        """Split the body into blocks of `size` bytes (RFC 7959); a body that fits is one block."""
        count = max(1, -(-len(self.payload) // size))
        return [Block(self, number, size, number + 1 < count) for number in range(count)]

    def _built(self, message_id: int, token: bytes, kind: int, payload: bytes, block1: bytes | None) -> bytes:
        form = self.content_format.to_bytes(_bytes_of(self.content_format), "big")
        options = [(_URI_PATH, b"events"), (_CONTENT_FORMAT, form)]
        options += [(_URI_QUERY, word.encode()) for word in self.query]
        options += [(_BLOCK1, block1)] if block1 else []
        head = bytes((_VERSION | kind << 4 | len(token), POST)) + message_id.to_bytes(2, "big") + token
        return head + _options(options) + _PAYLOAD_MARKER + payload


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a request's body."""

    request: Request
    number: int
    size: int
    more: bool

    def datagram(self, message_id: int, token: bytes, kind: int = CON) -> bytes:
        """Encode the message for this block."""
        exponent = self.size.bit_length() - 5
        option = self.number << 4 | self.more << 3 | exponent
        start = self.number * self.size
        payload = self.request.payload[start : start + self.size]
        return self.request._built(message_id, token, kind, payload, option.to_bytes(_bytes_of(option), "big"))


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message from the gateway that a sensor uses."""

    type: int
    code: int
    message_id: int
    token: bytes
    max_age_seconds: int
    payload: bytes

    @property
    def code_text(self) -> str:
        """Return the code in dotted form, such as 2.04."""
        return f"{self.code >> 5}.{self.code & 31:02d}"


def parse(datagram: bytes) -> Message | None:
    """Parse a message; return None where it is not CoAP."""
    if len(datagram) < 4 or datagram[0] >> 6 != 1:
        return None
    token_end = 4 + (datagram[0] & 15)
    if token_end > 12 or len(datagram) < token_end:
        return None
    try:
        max_age, payload = _read_options(datagram, token_end)
    except IndexError:
        return None
    return Message(
        datagram[0] >> 4 & 3, datagram[1], int.from_bytes(datagram[2:4], "big"), datagram[4:token_end], max_age, payload
    )


def empty_ack(message_id: int) -> bytes:
    """Encode the empty ACK for a confirmable message of the gateway."""
    return bytes((_VERSION | ACK << 4, EMPTY)) + message_id.to_bytes(2, "big")


def _options(options: list[tuple[int, bytes]]) -> bytes:
    parts, before = [], 0
    for number, value in options:
        delta, delta_more = _nibble(number - before)
        length, length_more = _nibble(len(value))
        parts.append(bytes((delta << 4 | length,)) + delta_more + length_more + value)
        before = number
    return b"".join(parts)


def _nibble(number: int) -> tuple[int, bytes]:
    """Split an option's delta or length into its nibble and the extension bytes (RFC 7252 section 3.1)."""
    if number < 13:
        return number, b""
    if number < 269:
        return 13, bytes((number - 13,))
    return 14, (number - 269).to_bytes(2, "big")


def _bytes_of(number: int) -> int:
    return (number.bit_length() + 7) // 8


def _read_options(datagram: bytes, at: int) -> tuple[int, bytes]:
    """Return Max-Age and the payload."""
    number, max_age = 0, _MAX_AGE_DEFAULT
    while at < len(datagram) and datagram[at] != _PAYLOAD_MARKER[0]:
        head, at = datagram[at], at + 1
        delta, at = _extended(datagram, at, head >> 4)
        length, at = _extended(datagram, at, head & 15)
        number += delta
        if number == _MAX_AGE:
            max_age = int.from_bytes(datagram[at : at + length], "big")
        at += length
    return max_age, datagram[at + 1 :]


def _extended(datagram: bytes, at: int, nibble: int) -> tuple[int, int]:
    if nibble == 13:
        return datagram[at] + 13, at + 1
    if nibble == 14:
        return int.from_bytes((datagram[at], datagram[at + 1]), "big") + 269, at + 2
    return nibble, at
