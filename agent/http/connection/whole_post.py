"""Reads the usual request of a sensor, a POST of events that arrives as a whole, without the HTTP library.

Every other request is left to the library: another form of a field, a field that has a meaning here for nobody, a body
in pieces.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from agent.http.head import Head

EVENTS_PATH: Final = "/api/v1/events"
HEAD_BYTES_MAX: Final = 1_024

_END: Final = b"\r\n\r\n"
_START: Final = b"POST /api/v1/events HTTP/1.1\r\n"
_FIELD: Final = rb"([A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)"
_FIELDS: Final = re.compile(rb"(?:%b\r\n)*%b" % (_FIELD, _FIELD))
_EACH_FIELD: Final = re.compile(_FIELD)
_NAMES: Final = frozenset(
    (
        b"host",
        b"content-type",
        b"content-length",
        b"authorization",
        b"accept",
        b"accept-encoding",
        b"connection",
        b"user-agent",
    )
)
_KEPT: Final = b"keep-alive"
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")


class WholePost(NamedTuple):
    """A request with its body."""

    head: Head
    body: bytes


def read_whole_post(data: bytes, peer: str) -> WholePost | None:
    """Return the request that the bytes are; None where they are another one, only a part, or more than one.

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
