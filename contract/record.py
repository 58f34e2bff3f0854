"""The Kafka record of an event: key, CloudEvents headers (binary mode) and JSON value.

The cloud removes duplicates by the headers alone. Their order is fixed, so that a reader may take each header by its
position, and search by name only where that fails.
"""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]  # the stubs leave it out
from typing import Final, NamedTuple
from urllib.parse import quote

from contract.event import Event, Label, Value
from contract.fields import CONTAINER, FIELDS, Kind
from contract.timestamp import rfc3339

SPECVERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/json"
TYPE_PREFIX: Final = "oncegate."
VALUE_PREFIX: Final = b'{"fingerprint":"'
VIA_START: Final = b',"via":"'
"""Stands once in a value, since inside a JSON string every quote is escaped."""
DATA_START: Final = b'"data":{'
EXT_BYTES_MAX: Final = 4096
"""Of the text of `ext`; entries for which there is no space are left out, and `ext` says so."""
EXT_CUT: Final = "cut"
SOURCES_KEPT: Final = 8_192
SOURCE_BYTES_KEPT: Final = 256
"""Bounds of the cache of encoded devices: 1.4 kB for each at most, 12 MB for all, since senders choose the names."""

HEADERS: Final[tuple[str, ...]] = (
    "ce_specversion",
    "ce_type",
    "ce_source",
    "ce_id",
    "ce_time",
    "content-type",
    "ce_oncegate",
)
"""The headers in their order; one for all that the gateway adds, since each costs every reader time."""
STATEMENT: Final = "ce_oncegate"
"""The extension attribute about the acceptance, in STATEMENT_WORDS words (`encode_record`)."""
STATEMENT_WORDS: Final = 7
MAC_WORD: Final = STATEMENT_WORDS
"""The place of the gateway's authentication (`contract.mac`), which is optional; further words are ignored."""
UNKNOWN: Final = "-"
"""The word for a bound that is unknown."""

NUMBER_MAX: Final = (1 << 53) - 1
"""The largest sequence; all readers of JSON have it exactly, and no sum or difference of such overflows."""
GATEWAY_BYTES_MAX: Final = 127
NAME_BYTES_MAX: Final = 4096
"""The limit of key, type and source; a device has 256 characters, each of which may take twelve bytes in a URI."""
STATEMENT_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 8 << 20
"""Above the value of the largest body, 1 MiB, all of whose bytes JSON escapes as six."""


class ClockTrust(StrEnum):
    """Whether the gateway's clock was known to be correct when the gateway accepted the event.

    Readers refuse any other value, so that no later release adds one; nor to `SharedDay`.
    """

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"


class SharedDay(StrEnum):
    """The day that all duplicates of an event share: that of its time, that of its label's acceptance, or none."""

    TIME = "time"
    LABEL = "label"
    NONE = "none"


class HeaderFields(NamedTuple):
    """The entries of the value that key and headers repeat."""

    device: str
    type: str
    time: int | None
    """Milliseconds since 1970 UTC."""
    received: int
    via: str


class Started(NamedTuple):
    """The content of an event `gateway.started`, the first of its epoch."""

    epoch: str
    previous: Label | None
    """Label of the last event of the epoch before; None in the gateway's first epoch."""


Headers = list[tuple[str, bytes]]
Record = tuple[bytes, bytes, Headers]
"""Key, value and headers; a plain tuple, since one is made for each event."""


def encode_tail(event: Event, received: int, via: str) -> bytes:
    """Return the part of the value that is known before the commit: entries of a JSON object, without braces."""
    parts = [_device_and_type(event.device, event.type)]
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
    if event.ext:
        parts.append(f'"ext":{_ext_text(event.ext)}')
    return ",".join(parts).encode()


def read_header_fields(tail: bytes) -> HeaderFields:
    """Read from a tail the entries that key and headers repeat."""
    device, type_, time, received, via = _read_fields(tail)
    return HeaderFields(
        device.decode(), type_.decode(), None if time is None else int(time), int(received), via.decode()
    )


def read_data(tail: bytes) -> bytes:
    """Return the entries `data` and `units` as they are in the tail; empty where the event has no data."""
    at, ext = tail.find(DATA_START), tail.find(_EXT_START)
    if at < 0 or 0 <= ext < at:
        return b""
    if ext >= 0 and (found := _DATA_AND_UNITS.match(tail, at)) is not None:
        return tail[at : found.end()]
    return tail[at:]


def read_started(tail: bytes) -> Started | None:
    """Read the tail of an event `gateway.started`; None for any other event."""
    match = _STARTED.match(tail)
    if match is None:
        return None
    epoch, previous, sequence = match.groups()
    return Started(epoch.decode(), Label(previous.decode(), int(sequence)) if previous else None)


def begins_section(tail: bytes) -> bool:
    """Whether a tail is that of a gateway's own event that begins a section of the hash chain (`contract.chain`)."""
    return _SECTION.match(tail) is not None


def encode_value(fingerprint: bytes, gateway: str, label: Label, tail: bytes) -> bytes:
    """Return the value: a JSON object of fingerprint, gateway, label and a tail by `encode_tail`."""
    before = _gateway_and_epoch(gateway, label.epoch)
    return b"%b%b%b%d,%b}" % (VALUE_PREFIX, fingerprint.hex().encode(), before, label.sequence, tail)


def encode_record(  # noqa: PLR0913  # what a record states
    fingerprint: bytes,
    gateway: str,
    label: Label,
    tail: bytes,
    clock: ClockTrust,
    shared: SharedDay,
    bound: int | None,
    *,
    sign: Callable[[bytes, bytes, bytes], bytes] | None = None,
) -> Record:
    """Return the record of an event with a tail by `encode_tail`; its key is the device.

    The other parameters are the gateway's statements about the acceptance; `bound` is the earliest time at which a
    duplicate can have existed, in milliseconds since 1970 UTC, None where unknown. `ce_oncegate` has seven words:
    gateway, epoch, sequence, time of acceptance, clock, shared day, and bound; `sign` (`contract.mac.Signer`) adds an
    eighth. The headers are in the order of HEADERS.
    """
    device, type_, time, received, _ = _read_fields(tail)
    start = _statement_start(gateway, label.epoch)
    accepted = f"{clock} {shared} {UNKNOWN if bound is None else bound}".encode()
    value, id_ = encode_value(fingerprint, gateway, label, tail), fingerprint.hex().encode()
    statement = b"%b %d %b %b" % (start, label.sequence, received, accepted)
    if sign is not None:
        statement = b"%b %b" % (statement, sign(id_, statement, value))
    return (
        device,
        value,
        [
            _SPECVERSION_HEADER,
            _type_header(type_),
            _kept_source_header(device) if len(device) <= SOURCE_BYTES_KEPT else _source_header(device),
            ("ce_id", id_),
            ("ce_time", _encode_time(received if time is None else time)),
            _CONTENT_TYPE_HEADER,
            (STATEMENT, statement),
        ],
    )


def read_stated_label(statement: bytes) -> tuple[str, Label]:
    """Return gateway and label of a statement; raise ValueError where it has another form."""
    gateway, epoch, sequence, *others = statement.decode().split(" ")
    if len(others) < STATEMENT_WORDS - 3:
        raise ValueError(f"expected {STATEMENT_WORDS} words")
    return gateway, Label(epoch, int(sequence))


def json_text(value: object) -> str:
    """Return JSON as records hold it: compact, not limited to ASCII, bytes as {"$bytes": base64url}."""
    return "".join(_encode_json(value, 0))


def encode_source(device: str) -> bytes:
    """Return the device as a URI reference: unchanged where it is a URI, else percent-encoded."""
    return (device if _URI.fullmatch(device) else quote(device, safe="")).encode()


_SPECVERSION_HEADER: Final = ("ce_specversion", SPECVERSION.encode())
_CONTENT_TYPE_HEADER: Final = ("content-type", CONTENT_TYPE.encode())


@lru_cache(maxsize=1024)
def _type_header(type_: bytes) -> tuple[str, bytes]:
    return "ce_type", TYPE_PREFIX.encode() + type_


def _source_header(device: bytes) -> tuple[str, bytes]:
    return "ce_source", encode_source(device.decode())


_kept_source_header: Final = lru_cache(maxsize=SOURCES_KEPT)(_source_header)


@lru_cache(maxsize=16)
def _gateway_and_epoch(gateway: str, epoch: str) -> bytes:
    return f'","gateway":{_encode_text(gateway)},"epoch":"{epoch}","sequence":'.encode()


@lru_cache(maxsize=16)
def _statement_start(gateway: str, epoch: str) -> bytes:
    return f"{gateway} {epoch}".encode()


def _encode_time(milliseconds: bytes) -> bytes:
    """Return a timestamp, given as digits, as RFC 3339 text; splitting the digits takes half the time of computing."""
    seconds = milliseconds[:-3]
    if not seconds.isdigit():
        return rfc3339(int(milliseconds)).encode()
    return b"%b%bZ" % (_second_and_point(seconds), milliseconds[-3:])


@lru_cache(maxsize=4096)
def _second_and_point(seconds: bytes) -> bytes:
    return rfc3339(int(seconds) * 1000).encode()[:-4]


_EXT_START: Final = b',"ext":{'
_DATA_AND_UNITS: Final = re.compile(f'"data":{CONTAINER}(?:,"units":{CONTAINER})?'.encode())
_FORMS: Final = {
    Kind.TEXT: r'"[^"\\]*"',
    Kind.WORD: r'"[^"\\]*"',
    Kind.NAME: r'(?:-?[0-9]+|"[^"\\]*")',
    Kind.INTEGER: "-?[0-9]+",
    Kind.TIME: "-?[0-9]+",
}


def _before_data() -> bytes:
    """Return an expression of the entries before `data`, with a group for each one that key and headers repeat.

    A match takes a fifth of the time of decoding the JSON, for data of any size.
    """
    entries: list[str] = []
    for field in FIELDS[: [field.name for field in FIELDS].index("data")]:
        form = _FORMS[field.kind]
        if field.name in HeaderFields._fields:
            form = f'"({form[1:-1]})"' if form[0] == '"' else f"({form})"
        entry = f'{"," if entries else ""}"{field.name}":{form}'
        entries.append(entry if field.is_required else f"(?:{entry})?")
    return "".join(entries).encode()


_BEFORE_DATA: Final = re.compile(_before_data())
_STARTED: Final = re.compile(
    rb'"device":"urn:oncegate:gateway:(?:[^"\\]|\\.)*","type":"gateway\.started","id":"([0-9a-f]{16})"'
    rb'(?:.*"previous_epoch":"([0-9a-f]{16})","previous_sequence":([0-9]+))?'
)

_SECTION: Final = re.compile(
    rb'"device":"urn:oncegate:gateway:(?:[^"\\]|\\.)*","type":"gateway\.(?:started|checkpoint)"'
)


def _read_fields(tail: bytes) -> tuple[bytes, bytes, bytes | None, bytes, bytes]:
    """Return device, type, time (None without one), received and via, numbers as digits."""
    match = _BEFORE_DATA.match(tail)
    if match is None:
        return _read_escaped(tail)
    device, type_, time, received, via = match.groups()
    return device, type_, time, received, via


def _read_escaped(tail: bytes) -> tuple[bytes, bytes, bytes | None, bytes, bytes]:
    """Read a tail in which a text holds a quote, a backslash or a control character."""
    entries = json.loads(b"{" + tail + b"}")
    time = entries.get("time")
    return (
        entries["device"].encode(),
        entries["type"].encode(),
        None if time is None else b"%d" % time,
        b"%d" % entries["received"],
        entries["via"].encode(),
    )


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")


@lru_cache(maxsize=4096)
def _device_and_type(device: str, type_: str) -> str:
    return f'"device":{_encode_text(device)},"type":{_encode_text(type_)}'


def _scalar(value: int | str) -> str:
    return str(value) if isinstance(value, int) else _encode_text(value)


def _ext_text(ext: Mapping[str, Value]) -> str:
    text = json_text(ext)
    if len(text.encode()) <= EXT_BYTES_MAX:
        return text
    kept: dict[str, Value] = {}
    room = EXT_BYTES_MAX - len(json_text({EXT_CUT: True}))
    for name, value in ext.items():
        size = len(json_text({name: value}).encode()) - 1  # a comma in place of two braces
        if size <= room and name != EXT_CUT:
            room -= size
            kept[name] = value
    kept[EXT_CUT] = True
    return json_text(kept)


def _json_bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"$bytes": urlsafe_b64encode(value).rstrip(b"=").decode()}
    raise TypeError(f"{type(value).__name__} has no place in an event")


_encode_text: Final = json.JSONEncoder(ensure_ascii=False).encode
_encode_json: Final[Callable[[object, int], Iterable[str]]] = c_make_encoder(
    None, _json_bytes, encode_basestring, None, ":", ",", False, False, False
)
"""The encoder that a JSONEncoder would create for each value, which takes longer than encoding a reading: without
spaces, not limited to ASCII, and without NaN."""
