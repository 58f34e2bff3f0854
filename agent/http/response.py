"""Maps outcomes to HTTP responses."""

import json
from dataclasses import dataclass
from typing import Final

from agent.delivery import TEMPORARY, Answer, Status

JSON: Final = "application/json"
RETRY_SECONDS_MIN: Final = 1
NO_OTHER_SITE: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Fields by which a browser keeps a response from pages of other sites, and takes it for nothing else."""
MEDIA_TYPES: Final = "application/json, application/cbor, application/senml+json, application/senml+cbor"

CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="oncegate"')
"""The field without which no response is a 401 (RFC 9110 section 11.6.1)."""
_CODES: Final = {
    Status.UNDECODABLE: 400,
    Status.UNAUTHENTICATED: 401,
    Status.FORBIDDEN: 403,
    Status.NOT_FOUND: 404,
    Status.TOO_LARGE: 413,
    Status.UNKNOWN_FORMAT: 415,
    Status.TOO_MANY: 429,
    Status.UNAVAILABLE: 503,
}


_STATUSES: Final = {**{code: status for status, code in _CODES.items()}, 405: Status.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class Response:
    """A response, independent of its connection."""

    code: int
    body: bytes
    media_type: str = JSON
    fields: tuple[tuple[str, str], ...] = ()


def fields_of(response: Response) -> list[tuple[bytes, bytes]]:
    """Return all fields of a response, as they are sent."""
    fields = (
        ("Content-Type", response.media_type),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        *response.fields,
    )
    return [(name.encode(), value.encode("latin-1")) for name, value in fields]


class Refusal(Exception):  # noqa: N818  # the name states what it is
    """Ends the processing of a request with this response."""

    def __init__(self, response: Response, reason: str) -> None:
        super().__init__(response.code)
        self.response = response
        self.reason = reason

    def answer(self) -> Answer:
        """Return the refusal as an answer to a sender of events."""
        return Answer(_STATUSES.get(self.response.code, Status.UNDECODABLE), reason=self.reason)


def encode(content: object) -> bytes:
    """Return a response's content as JSON."""
    return json.dumps(content, separators=(",", ":")).encode()


def document(code: int, content: object, *fields: tuple[str, str]) -> Response:
    """Return a response with JSON content."""
    return Response(code, encode(content), JSON, fields)


def refusal(code: int, error: str, message: str, *fields: tuple[str, str]) -> Refusal:
    """Return a refusal: `error` is for programs, `message` for people."""
    return Refusal(document(code, {"error": error, "message": message}, *fields), message)


def response_to(answer: Answer) -> Response:
    """Return the response for an outcome."""
    if answer.status is Status.DURABLE:
        return document(
            200,
            {
                "accepted": answer.accepted,
                "duplicates": answer.duplicates,
                "rejected": answer.rejected,
                "fingerprints": [fingerprint.hex() for fingerprint in answer.fingerprints],
            },
        )
    fields = [retry_after(answer.retry_seconds)] if answer.status in TEMPORARY else []
    fields += [CHALLENGE] if answer.status is Status.UNAUTHENTICATED else []
    return refusal(_CODES[answer.status], answer.status.value, answer.reason, *fields).response


def retry_after(seconds: int) -> tuple[str, str]:
    """Return the Retry-After field (RFC 9110 section 10.2.3)."""
    return "Retry-After", str(max(RETRY_SECONDS_MIN, seconds))
