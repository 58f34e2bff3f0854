"""The head of a request; and a sensor's usual request, a whole POST of events, read without the HTTP library.

Every other request is left to the library: another form of a field, a field that has a meaning here for nobody, a body
in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from agent.delivery import Media
from agent.http.response import MEDIA_TYPES, refusal

_MEDIA: Final = {
    "application/json": Media.JSON,
    "application/cbor": Media.CBOR,
    "application/senml+json": Media.SENML_JSON,
    "application/senml+cbor": Media.SENML_CBOR,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request; its methods raise Refusal for invalid content."""

    method: str
    path: str
    query: str
    """Still percent-encoded."""
    fields: Sequence[tuple[bytes, bytes]]
    """Names in lower case."""
    peer: str
    """The client's address as the host of a URI."""

    @classmethod
    def of(cls, method: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]], peer: str) -> Head:
        """Return the head with this target, in origin form or absolute form (RFC 9112 section 3.2)."""
        text = target.decode("ascii", "replace")
        if not text.startswith("/"):
            try:
                parts = urlsplit(text)
            except ValueError:
                parts = urlsplit("")
            text = f"{parts.path}?{parts.query}"
        path, _, query = text.partition("?")
        return cls(method.decode("ascii", "replace"), path, query, fields, peer)

    def field(self, name: bytes) -> str | None:
        """Return the value of a field that may occur once; None where it is absent."""
        values = [value for field, value in self.fields if field == name]
        if len(values) > 1:
            raise refusal(400, "bad request", f"{name.decode()} occurs {len(values)} times; send it once")
        return values[0].decode("latin-1") if values else None

    @property
    def body_bytes(self) -> int | None:
        """The body's length; None where it is sent in chunks."""
        if any(name == b"transfer-encoding" for name, _ in self.fields):
            return None
        return next((int(value) for name, value in self.fields if name == b"content-length"), 0)

    def media(self) -> Media:
        """Return the format of the body.

        It has to be named: another site's page in a browser cannot send these types without a preflight request (CORS).
        """
        if (self.field(b"content-encoding") or "identity").strip().lower() != "identity":
            raise refusal(415, "unknown format", "Content-Encoding is not supported; send the body as it is")
        media = _MEDIA.get((self.field(b"content-type") or "").partition(";")[0].strip().lower())
        if media is None:
            raise refusal(415, "unknown format", f"send Content-Type: one of {MEDIA_TYPES}", ("Accept", MEDIA_TYPES))
        return media

    def words(self) -> Mapping[str, str]:
        """Return the query's words, each with its value; the decoder checks which words are known."""
        words: dict[str, str] = {}
        for part in filter(None, self.query.split("&")):
            encoded, equals, value = part.partition("=")
            try:
                word, value = unquote(encoded, errors="strict"), unquote(value, errors="strict")
            except UnicodeDecodeError:
                raise refusal(400, "undecodable", f"query: {encoded[:16]!a} is not UTF-8") from None
            if not equals or word in words:
                problem = "twice" if equals else "has no value"
                raise refusal(400, "undecodable", f"query: {word[:16]!a} {problem}; known: ?d=, id=, boot=, t=, type=")
            words[word] = value
        return words


EVENTS_PATH: Final = "/api/v1/events"
HEAD_BYTES_MAX: Final = 1_024

_END: Final = b"\r\n\r\n"
_START: Final = b"POST /api/v1/events HTTP/1.1\r\n"
_FIELD: Final = rb"([A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)"
_FIELDS: Final = re.compile(rb"(?:%b\r\n)*%b" % (_FIELD, _FIELD))
_EACH_FIELD: Final = re.compile(_FIELD)
_NAMES: Final = frozenset(
    b"host content-type content-length authorization accept accept-encoding connection user-agent".split()
)
_KEPT: Final = b"keep-alive"
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")


class WholePost(NamedTuple):
    """A request with its body."""

    head: Head
    body: bytes


def read_whole_post(data: bytes, peer: str) -> WholePost | None:
    """Return the one whole POST of events in the bytes; None for another request, a part, or several.

    `peer` is the client's address as the host of a URI. RFC 9112: each field stands in one line, and occurs once.
    """
    if not data.startswith(_START):
        return None
    end = data.find(_END, len(_START), HEAD_BYTES_MAX)
    if end < 0:  # before the slice: the compiled form cannot cut one whose end precedes its start
        return None
    text = data[len(_START) : end]
    if not _FIELDS.fullmatch(text):
        return None
    fields = [(name.lower(), value) for name, value in _EACH_FIELD.findall(text)]
    values = dict(fields)
    body = data[end + len(_END) :]
    length = values.get(b"content-length", b"")
    if len(values) != len(fields) or not values.keys() <= _NAMES or b"host" not in values:
        return None
    if not _LENGTH.fullmatch(length) or int(length) != len(body) or values.get(b"connection", _KEPT).lower() != _KEPT:
        return None
    return WholePost(Head("POST", EVENTS_PATH, "", fields, peer), body)
