"""A request without its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from agent.delivery import Media
from agent.http.reply import MEDIA_TYPES, refusal

_MEDIA = {
    "application/json": Media.JSON,
    "application/cbor": Media.CBOR,
    "application/senml+json": Media.SENML_JSON,
    "application/senml+cbor": Media.SENML_CBOR,
}


@dataclass(frozen=True, slots=True)
class Head:
    """What the first lines of a request say; its methods raise Refusal where they say it wrongly."""

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
        """Read a request line's target, in origin form or absolute form (RFC 9112 section 3.2)."""
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
        """Return the value of a field that may stand there once."""
        values = [value for field, value in self.fields if field == name]
        if len(values) > 1:
            raise refusal(400, "bad request", f"{name.decode()} stands there {len(values)} times; say it once")
        return values[0].decode("latin-1") if values else None

    @property
    def body_bytes(self) -> int | None:
        """How long the body is; None where only its end will tell."""
        if any(name == b"transfer-encoding" for name, _ in self.fields):
            return None
        return next((int(value) for name, value in self.fields if name == b"content-length"), 0)

    def media(self) -> Media:
        """Return the format of the body.

        It has to be named: a browser that somebody has lured here cannot name these without asking first (CORS).
        """
        if (self.field(b"content-encoding") or "identity").strip().lower() != "identity":
            raise refusal(415, "unknown format", "Content-Encoding is not supported; send the body as it is")
        media = _MEDIA.get((self.field(b"content-type") or "").partition(";")[0].strip().lower())
        if media is None:
            raise refusal(415, "unknown format", f"say Content-Type: one of {MEDIA_TYPES}", ("Accept", MEDIA_TYPES))
        return media

    def words(self) -> Mapping[str, str]:
        """Return the words of the query, each with its value; which words there are, decoding knows."""
        words: dict[str, str] = {}
        for part in filter(None, self.query.split("&")):
            encoded, equals, value = part.partition("=")
            try:
                word, value = unquote(encoded, errors="strict"), unquote(value, errors="strict")
            except UnicodeDecodeError:
                raise refusal(400, "undecodable", f"query: {encoded[:16]!a} is not UTF-8") from None
            if not equals or word in words:
                problem = "twice" if equals else "has no value"
                raise refusal(400, "undecodable", f"query: {word[:16]!a} {problem}; say ?d=, id=, boot=, t=, type=")
            words[word] = value
        return words
