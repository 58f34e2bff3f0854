"""The Kafka record of an event: key, CloudEvents headers (binary mode) and JSON value.

The cloud dedups from the headers alone. They stand in one fixed order, so that a reader may take each by its
position and search by name only where that fails.
"""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the stubs leave it out
from typing import NamedTuple
from urllib.parse import quote

from contract.event import Event, Label
from contract.moment import rfc3339

SPECVERSION = "1.0"
CONTENT_TYPE = "application/json"
TYPE_PREFIX = "oncegate."
SEQUENCE_DIGITS = 20
VALUE_PREFIX = b'{"fingerprint":"'
SOURCES_KEPT = 8_192
SOURCE_CHARACTERS_KEPT = 64
"""Names of devices that are kept encoded: 1.4 kB for each at most, 12 MB for all, since strangers may choose them."""

HEADERS = (
    "ce_specversion",
    "ce_type",
    "ce_source",
    "ce_id",
    "ce_time",
    "ce_gateway",
    "ce_epoch",
    "ce_sequence",
    "ce_recordedtime",
    "ce_clock",
    "ce_shared",
    "content-type",
    "ce_bound",
)
"""The headers in their order; ce_bound stands last, since it is absent where the bound is unknown."""


class ClockTrust(StrEnum):
    """Whether the gateway's clock was known to be right when it accepted the event."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"


class Shared(StrEnum):
    """Which day all copies of an event share: that of its time, that of its label's acceptance, or none."""

    TIME = "time"
    LABEL = "label"
    NONE = "none"


class Acceptance(NamedTuple):
    """What the gateway itself says of an event when it accepts it; moments in milliseconds since 1970 UTC."""

    received: int
    via: str
    clock: ClockTrust
    shared: Shared
    bound: int | None
    """The earliest moment at which a copy can have existed; None where unknown."""


Headers = list[tuple[str, bytes]]


def encode_tail(event: Event, received: int, via: str) -> bytes:
    """Encode all of the value that is known before the commit: an open JSON object's entries, without braces."""
    parts = [_speaker(event.device, event.type)]
    if event.id is not None:
        parts.append(f'"id":{_scalar(event.id)}')
    if event.boot is not None:
        parts.append(f'"boot":{_scalar(event.boot)}')
    if event.time is not None:
        parts.append(f'"time":{event.time}')
    if event.offset_ms is not None:
        parts.append(f'"offset_ms":{event.offset_ms}')
    parts.append(f'"received":{received},"via":"{via}"')
    if event.data is not None:
        parts.append(f'"data":{json_text(event.data)}')
    if event.units:
        parts.append(f'"units":{json_text(event.units)}')
    return ",".join(parts).encode()


def encode_value(fingerprint: bytes, gateway: str, label: Label, tail: bytes) -> bytes:
    """Close the value: fingerprint and label before what `encode_tail` gave."""
    name = f'{{"fingerprint":"{fingerprint.hex()}","gateway":{_json_name(gateway)},'
    return f'{name}"epoch":"{label.epoch}","sequence":{label.sequence},'.encode() + tail + b"}"


def encode_headers(
    fingerprint: bytes, gateway: str, label: Label, device: str, type_: str, time: int | None, acceptance: Acceptance
) -> Headers:
    """Return the headers in the order of HEADERS."""
    received = rfc3339(acceptance.received).encode()
    own = received if time is None else rfc3339(time).encode()
    headers: Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_type", _encode_type(type_)),
        ("ce_source", encode_source(device)),
        ("ce_id", fingerprint.hex().encode()),
        ("ce_time", own),
        ("ce_gateway", gateway.encode()),
        ("ce_epoch", label.epoch.encode()),
        ("ce_sequence", b"%020d" % label.sequence),
        ("ce_recordedtime", received),
        ("ce_clock", acceptance.clock.encode()),
        ("ce_shared", acceptance.shared.encode()),
        ("content-type", b"application/json"),
    ]
    bound = acceptance.bound
    if bound is not None:
        headers.append(("ce_bound", own if bound == time else rfc3339(bound).encode()))
    return headers


def json_text(value: object) -> str:
    """Write JSON as records hold it: compact, UTF-8, bytes as {"$bytes": base64url}."""
    return "".join(_encode_json(value, 0))


def encode_source(device: str) -> bytes:
    """Return the device as a URI reference: as it is where it is a URI, else percent-encoded."""
    return _kept_source(device) if len(device) <= SOURCE_CHARACTERS_KEPT else _source(device)


def _source(device: str) -> bytes:
    return (device if _URI.fullmatch(device) else quote(device, safe="")).encode()


_kept_source = lru_cache(maxsize=SOURCES_KEPT)(_source)


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")


@lru_cache(maxsize=1024)
def _encode_type(type_: str) -> bytes:
    return (TYPE_PREFIX + type_).encode()


@lru_cache(maxsize=4096)
def _speaker(device: str, type_: str) -> str:
    return f'"device":{_encode_text(device)},"type":{_encode_text(type_)}'


def _scalar(value: int | str) -> str:
    return str(value) if isinstance(value, int) else _encode_text(value)


@lru_cache(maxsize=16)
def _json_name(gateway: str) -> str:
    return _encode_text(gateway)


def _json_bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"$bytes": urlsafe_b64encode(value).rstrip(b"=").decode()}
    raise TypeError(f"{type(value).__name__} has no place in an event")


_encode_text = json.JSONEncoder(ensure_ascii=False).encode
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_json_bytes)
_encode_json: Callable[[object, int], Iterable[str]] = (
    (lambda value, _: _encoder.iterencode(value))
    if c_make_encoder is None
    else c_make_encoder(None, _json_bytes, encode_basestring, None, ":", ",", False, False, False)
)
"""What `_encoder` makes anew for each value, which takes longer than encoding a reading; so it is made once."""
