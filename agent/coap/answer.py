"""Maps outcomes to CoAP responses (RFC 7252 section 5.9)."""

from dataclasses import dataclass
from typing import Final

from agent.coap.message import Option, join, uint, write_options
from agent.delivery import TEMPORARY, Answer, Status
from contract.cbor import encode_integer

CHANGED: Final = 0x44
CONTINUE: Final = 0x5F
BAD_REQUEST: Final = 0x80
UNAUTHORIZED: Final = 0x81
BAD_OPTION: Final = 0x82
FORBIDDEN: Final = 0x83
NOT_FOUND: Final = 0x84
METHOD_NOT_ALLOWED: Final = 0x85
INCOMPLETE: Final = 0x88
TOO_LARGE: Final = 0x8D
UNSUPPORTED_FORMAT: Final = 0x8F
TOO_MANY_REQUESTS: Final = 0x9D
"""4.29 (RFC 8516)."""
UNAVAILABLE: Final = 0xA3
NO_PROXY: Final = 0xA5

CONTENT_FORMAT: Final = 12
MAX_AGE: Final = 14
SIZE1: Final = 60
CBOR: Final = 60
DIAGNOSTIC_BYTES_MAX: Final = 64
"""Fits into one 802.15.4 frame beside the headers (RFC 7252 section 5.5.2: keep it short)."""
RETRY_SECONDS_MIN: Final = 1


@dataclass(frozen=True, slots=True)
class Reply:
    """A response without its header, independent of the CoAP stack."""

    code: int
    payload: bytes = b""
    """A diagnostic, or a value in `content_format`."""
    content_format: int | None = None
    max_age: int | None = None
    """Seconds after which to try again (RFC 7252 section 5.9.3.4)."""
    size1: int | None = None
    """The largest accepted body, in bytes (RFC 7959 section 4)."""
    lasting: bool = False
    """Whether the same datagram gets the same answer, unlike a temporary refusal or one of a credential."""


ACCEPTED: Final = Reply(CHANGED, lasting=True)
"""Its payload is empty: the code 2.04 is the whole answer."""

TOO_MANY: Final = Reply(UNAVAILABLE, b"too many requests in progress", max_age=5)
"""The refusal of a request that was not read."""
BAD_BLOCK: Final = Reply(BAD_REQUEST, b"payload and Block1 disagree")
BEGIN_AGAIN: Final = Reply(INCOMPLETE, b"begin again with block 0")
BODY_TOO_LARGE: Final = Answer(Status.TOO_LARGE, reason="body too large")

_CODES: Final = {
    Status.UNDECODABLE: BAD_REQUEST,
    Status.UNKNOWN_FORMAT: UNSUPPORTED_FORMAT,
    Status.TOO_LARGE: TOO_LARGE,
    Status.UNAUTHENTICATED: UNAUTHORIZED,
    Status.FORBIDDEN: FORBIDDEN,
    Status.NOT_FOUND: NOT_FOUND,
    Status.TOO_MANY: TOO_MANY_REQUESTS,
    Status.UNAVAILABLE: UNAVAILABLE,
}
_STATUSES: Final = {**{code: status for status, code in _CODES.items()}, METHOD_NOT_ALLOWED: Status.NOT_FOUND}
_LASTING: Final = frozenset((Status.UNDECODABLE, Status.UNKNOWN_FORMAT, Status.TOO_LARGE))
"""Those that depend on the datagram alone."""


def reply_to(answer: Answer, body_bytes_max: int) -> Reply:
    """Return the reply for an outcome."""
    status = answer.status
    if status is Status.DURABLE:
        return ACCEPTED
    return Reply(
        _CODES[status],
        diagnostic(answer.reason),
        max_age=max(RETRY_SECONDS_MIN, answer.retry_seconds) if status in TEMPORARY else None,
        size1=body_bytes_max if status is Status.TOO_LARGE else None,
        lasting=status in _LASTING,
    )


def refusal_of(code: int, payload: bytes) -> Answer:
    """Return a refusal by this code as an answer, for the counts."""
    text = payload.decode("utf-8", "replace") or f"{code >> 5}.{code & 31:02}"
    return Answer(_STATUSES.get(code, Status.UNDECODABLE), reason=text)


def accepted_at(now: int | None) -> Reply:
    """Return the acceptance with the time, in milliseconds since 1970 UTC, as a CBOR integer; without it where None.

    It is not cached: the answer to a retransmission has the time at which that is sent.
    """
    return Reply(CHANGED) if now is None else Reply(CHANGED, encode_integer(now), CBOR)


def diagnostic(text: str) -> bytes:
    """Return a text, cut between two characters to the size of a diagnostic payload."""
    return text.encode("utf-8", "replace")[:DIAGNOSTIC_BYTES_MAX].decode("utf-8", "ignore").encode()


def tail(reply: Reply) -> bytes:
    """Return a reply's options and payload as bytes."""
    if reply is ACCEPTED:
        return b""
    given = ((CONTENT_FORMAT, reply.content_format), (MAX_AGE, reply.max_age), (SIZE1, reply.size1))
    options = tuple([Option(number, uint(value)) for number, value in given if value is not None])
    return join(b"", write_options(options), reply.payload)
