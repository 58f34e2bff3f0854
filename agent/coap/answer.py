"""What a sensor is told: the table from outcomes to CoAP's response codes (RFC 7252 section 5.9)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.coap.message import PAYLOAD_MARKER, Option, uint, write_options
from agent.delivery import Answer, Status
from contract.cbor import encode_integer

CHANGED, CONTINUE = 0x44, 0x5F
BAD_REQUEST, UNAUTHORIZED, BAD_OPTION, FORBIDDEN = 0x80, 0x81, 0x82, 0x83
INCOMPLETE, TOO_LARGE, UNSUPPORTED_FORMAT = 0x88, 0x8D, 0x8F
UNAVAILABLE, NO_PROXY = 0xA3, 0xA5

CONTENT_FORMAT, MAX_AGE, SIZE1 = 12, 14, 60
CBOR = 60
DIAGNOSTIC_BYTES_MAX = 64
"""What fits into one 802.15.4 frame beside the headers (RFC 7252 section 5.5.2: keep it short)."""
RETRY_SECONDS_MIN = 1


@dataclass(frozen=True, slots=True)
class Reply:
    """A response without its header: what both stacks can turn into theirs."""

    code: int
    payload: bytes = b""
    """A diagnostic, or what `content_format` says."""
    content_format: int | None = None
    max_age: int | None = None
    """Seconds after which it is worth trying again (RFC 7252 section 5.9.3.4)."""
    size1: int | None = None
    """The largest body that we take (RFC 7959 section 4)."""
    lasting: bool = False
    """Whether the same datagram deserves the same answer: a refusal for now, and one of a credential, do not."""


ACCEPTED = Reply(CHANGED, lasting=True)
"""Its payload is empty: a 2.04 means all by its code."""

TOO_MANY = Reply(UNAVAILABLE, b"too many requests in work", max_age=5)
"""The refusal of a request that was not even looked at."""
BODY_TOO_LARGE = Answer(Status.TOO_LARGE, reason="body too large")

_CODES = {
    Status.UNDECODABLE: BAD_REQUEST,
    Status.UNKNOWN_FORMAT: UNSUPPORTED_FORMAT,
    Status.TOO_LARGE: TOO_LARGE,
    Status.UNAUTHENTICATED: UNAUTHORIZED,
    Status.FORBIDDEN: FORBIDDEN,
    Status.UNAVAILABLE: UNAVAILABLE,
}
_LASTING = frozenset((Status.UNDECODABLE, Status.UNKNOWN_FORMAT, Status.TOO_LARGE))
"""What depends on the datagram alone."""


def reply_to(answer: Answer, body_bytes_max: int) -> Reply:
    """Put an outcome into CoAP's words."""
    status = answer.status
    if status is Status.DURABLE:
        return ACCEPTED
    return Reply(
        _CODES[status],
        diagnostic(answer.reason),
        max_age=max(RETRY_SECONDS_MIN, answer.retry_seconds) if status is Status.UNAVAILABLE else None,
        size1=body_bytes_max if status is Status.TOO_LARGE else None,
        lasting=status in _LASTING,
    )


def accepted_at(now: int | None) -> Reply:
    """Return the reply with the time, in milliseconds since 1970 UTC, as a CBOR integer; None: not known.

    It does not last: a retransmission deserves the time as it is then.
    """
    return Reply(CHANGED) if now is None else Reply(CHANGED, encode_integer(now), CBOR)


def diagnostic(text: str) -> bytes:
    """Cut a text to what a diagnostic payload may take, between two characters."""
    return text.encode("utf-8", "replace")[:DIAGNOSTIC_BYTES_MAX].decode("utf-8", "ignore").encode()


def tail(reply: Reply) -> bytes:
    """Write a reply's options and payload."""
    if reply is ACCEPTED:
        return b""
    options = []
    if reply.content_format is not None:
        options.append(Option(CONTENT_FORMAT, uint(reply.content_format)))
    if reply.max_age is not None:
        options.append(Option(MAX_AGE, uint(reply.max_age)))
    if reply.size1 is not None:
        options.append(Option(SIZE1, uint(reply.size1)))
    payload = bytes((PAYLOAD_MARKER,)) + reply.payload if reply.payload else b""
    return write_options(tuple(options)) + payload
