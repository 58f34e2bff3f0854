"""Judges and decodes records in Python as `stream.records` and `table.rows` do in Spark, with which a test compares it.

They differ only where a value is no strict JSON, or has names of more than 50,000 characters, as no gateway's has: one
of them then keeps the row's raw bytes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from cloud.gateways import GatewayFile, fits
from cloud.table.layout import (
    AHEAD_DAYS_MAX,
    BEFORE_DATA,
    DAY_OUTSIDE,
    DEVICE,
    ENTRY_BEHIND_DATA,
    NUL_IN_JSON,
    NUL_PATTERN,
    PAST_DAYS_MAX,
    STAGED,
    TEXTS,
    TIMESTAMP_BYTES,
    VIA,
    YEARS,
    Reason,
)
from contract.event import TIME_MAX, TIME_MIN, TYPE_RESERVED_PREFIX
from contract.fields import FIELDS, KEYS, OBJECTS, VERSION, Kind, exact_text
from contract.record import (
    CONTENT_TYPE,
    GATEWAY_BYTES_MAX,
    HEADERS,
    MAC_WORD,
    NAME_BYTES_MAX,
    NUMBER_MAX,
    SPECVERSION,
    STATEMENT_BYTES_MAX,
    STATEMENT_WORDS,
    TYPE_PREFIX,
    UNKNOWN,
    VALUE_BYTES_MAX,
    VALUE_PREFIX,
    ClockTrust,
    SharedDay,
)

Headers = Sequence[tuple[str, bytes | None]]
Descriptions = Mapping[str, tuple[str | None, ...]]
"""The description of each device, in the order of `layout.DEVICE`."""

_PREFIX = TYPE_PREFIX.encode()
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_FINGERPRINT, _EPOCH = re.compile(rb"[0-9a-f]{32}"), re.compile(rb"[0-9a-f]{16}")
_COUNT, _NUMBER = re.compile(rb"0|[1-9][0-9]{0,15}"), re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_TIMESTAMP = re.compile(rb"\s*(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(?:\.(\d*))?Z")
_CLOCKS, _SHARED = ({one.value.encode() for one in kind} for kind in (ClockTrust, SharedDay))
_START = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = (Kind.INTEGER, Kind.TIME)
_LONG = 1 << 63
_FIELDS = [(field.name, field.column, field.kind, field.is_required) for field in FIELDS]
_EXACT = {name: re.compile(exact_text(name)) for name in OBJECTS}
_NUL = re.compile(NUL_PATTERN)


@dataclass(frozen=True, slots=True)
class Appended:
    """Where and when a record was appended; the time in milliseconds since 1970 UTC, None if it is not known."""

    partition: int
    offset: int
    time: int | None


@dataclass(frozen=True, slots=True)
class Judged:
    """A record as a row of the staging table."""

    row: tuple[object, ...]
    is_newer: bool
    """Whether it has words, headers or keys that are not known here, those of a later gateway."""
    contract: int = VERSION
    """The version of the contract that a gateway states in it."""
    retention_seconds: int | None = None
    """For how long the gateway says that an id is unique."""


class _Headers:
    """What the headers say."""

    def __init__(self, headers: Headers) -> None:
        found = (_header(headers, at) for at in range(len(HEADERS)))
        self.specversion, self.type, self.source, self.id, self.time, self.content_type, statement = found
        is_read = statement is not None and len(statement) <= STATEMENT_BYTES_MAX
        self.words = statement.split(b" ") if is_read and statement is not None else []
        words = (*self.words, *[b""] * STATEMENT_WORDS)
        self.gateway, self.epoch, self.sequence, received, self.clock, self.shared, self.bound = words[:STATEMENT_WORDS]
        self.event_time = _timestamp(self.time)
        self.received = _moment(received)
        self.has_unknown = len(self.words) > MAC_WORD + 1 or len(headers) > len(HEADERS)


def judge(  # a record, and what it is compared with
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    place: Appended,
    *,
    seen: datetime,
    known: Descriptions,
    gateways: GatewayFile | None = None,
) -> Judged:
    """Return a record's row, with a reason where it belongs in the quarantine.

    Without `gateways` any well-formed record is that of the gateway that it names. With it, what no gateway has signed
    is judged no further: it says nothing of any label.
    """
    said = _Headers(headers)
    columns: dict[str, object] = {
        "kafka_partition": place.partition,
        "kafka_offset": place.offset,
        "appended": None if place.time is None else _of_milliseconds(place.time),
        "processed_at": seen,
        "kafka_key": key,
        "value": value,
    }
    is_signed = gateways is None or fits(gateways.signers, said.id, said.words, value)
    reason = _reason(key, value, said) if is_signed else Reason.MAC
    if reason is not None or key is None or value is None:
        columns |= {"reason": reason, "headers": _headers_text(headers)}
        return Judged(tuple(map(columns.get, STAGED)), said.has_unknown)
    text = value.decode()
    entries = _entries(text)
    columns |= _decoded(entries, text, value)
    device = key.decode()
    columns |= {
        "fingerprint": bytes.fromhex((said.id or b"").decode()),
        "device": device,
        "type": (said.type or b"")[len(_PREFIX) :].decode(),
        "received": said.received,
        "clock": said.clock.decode(),
        "gateway": said.gateway.decode(),
        "epoch": said.epoch.decode(),
        "sequence": int(said.sequence),
        "shared": said.shared.decode(),
    }
    in_identity = said.event_time if said.shared.decode() == SharedDay.TIME else None
    columns["event_time"] = columns["event_time"] or in_identity
    columns["day"] = _day(in_identity or said.received, columns["appended"])
    columns |= zip(DEVICE, known.get(device, ()), strict=False)
    _replace_nul(columns, value)
    is_newer = said.has_unknown or not entries.keys() <= KEYS
    return Judged(tuple(map(columns.get, STAGED)), is_newer, *_stated(str(columns["type"]), entries))


def _header(headers: Headers, at: int) -> bytes | None:
    """Return a header: by its position, by its name only where that fails; None where there is none."""
    if at < len(headers) and headers[at][0] == HEADERS[at]:
        return headers[at][1]
    return next((value for name, value in headers if name == HEADERS[at]), None)


def _headers_text(headers: Headers) -> str | None:
    named = [
        {"key": name} if value is None else {"key": name, "value": b64encode(value).decode()} for name, value in headers
    ]
    return without_nul(json.dumps(named, ensure_ascii=False, separators=(",", ":"))) if named else None


def _reason(key: bytes | None, value: bytes | None, said: _Headers) -> Reason | None:
    """Return the first check that a record fails, in the order of `Reason`; None for none."""
    if key is None or not _headers_are_ours(key, said):
        return Reason.HEADERS
    if not _FINGERPRINT.fullmatch(said.id or b""):
        return Reason.FINGERPRINT
    if not _EPOCH.fullmatch(said.epoch) or not _COUNT.fullmatch(said.sequence) or int(said.sequence) > NUMBER_MAX:
        return Reason.LABEL
    is_bounded = said.bound.decode(errors="replace") == UNKNOWN or _moment(said.bound) is not None
    if said.event_time is None or said.received is None or not is_bounded:
        return Reason.TIMESTAMPS
    if said.clock not in _CLOCKS:
        return Reason.CLOCK
    if said.shared not in _SHARED:
        return Reason.SHARED
    if value is None or not _value_is_whole(value, said.id or b""):
        return Reason.VALUE
    is_true = _value_says_the_same(key, value, said) and _value_has_the_times(value, said)
    return None if is_true else Reason.CONTRADICTION


def _headers_are_ours(key: bytes, said: _Headers) -> bool:
    return (
        said.specversion == SPECVERSION.encode()
        and said.content_type == CONTENT_TYPE.encode()
        and said.type is not None
        and said.type.startswith(_PREFIX)
        and len(said.type) <= NAME_BYTES_MAX
        and 1 <= len(said.source or b"") <= NAME_BYTES_MAX
        and len(key) <= NAME_BYTES_MAX
        and len(said.words) >= STATEMENT_WORDS
        and 1 <= len(said.gateway) <= GATEWAY_BYTES_MAX
        and not _CONTROL.search(said.gateway)
    )


def _value_is_whole(value: bytes, id_: bytes) -> bool:
    is_ours = value.startswith(VALUE_PREFIX + id_ + b'"') and value.endswith(b"}") and len(value) <= VALUE_BYTES_MAX
    try:
        return is_ours and bool(value.decode())
    except UnicodeDecodeError:
        return False


def _value_says_the_same(key: bytes, value: bytes, said: _Headers) -> bool:
    """Whether the value begins with gateway, label, device and type of key and headers."""
    type_ = (said.type or b"")[len(_PREFIX) :]
    head = b'%b%b","gateway":"%b","epoch":"%b","sequence":%b,"device":"%b","type":"%b"'
    if value.startswith(head % (VALUE_PREFIX, said.id, said.gateway, said.epoch, said.sequence, key, type_)):
        return True
    entries = _entries(value.decode())
    names = {"gateway": said.gateway, "epoch": said.epoch, "sequence": said.sequence, "device": key, "type": type_}
    return all((_string(entries.get(name)) or "").encode(errors="replace") == word for name, word in names.items())


def _value_has_the_times(value: bytes, said: _Headers) -> bool:
    """Whether headers, statement and value agree on the times that locate duplicates."""
    if b',"received":%b,' % said.words[3] not in value:
        return False
    is_bound = _moment(said.bound) == said.event_time and b',"time":%b,' % said.bound in value
    return said.shared.decode() != SharedDay.TIME or is_bound


def _entries(text: str) -> dict[str, Any]:
    """Return the entries of a value; none where it is no JSON object."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _decoded(entries: dict[str, Any], text: str, value: bytes) -> dict[str, object]:
    """Return the columns that are read from the value; one that cannot be decoded keeps its raw bytes, without data."""
    columns: dict[str, object] = {}
    has_failed = not entries
    tail = text.partition(VIA)[2]
    for name, column, kind, is_required in _FIELDS:
        entry = entries.get(name)
        found: object = None
        if entry is None:
            has_failed |= is_required
        elif kind in _INTEGERS:
            is_long = isinstance(entry, int) and not isinstance(entry, bool) and -_LONG <= entry < _LONG
            is_good = is_long and (kind is not Kind.TIME or TIME_MIN <= entry <= TIME_MAX)
            has_failed |= not is_good
            found = (_of_milliseconds(entry) if kind is Kind.TIME else entry) if is_good else None
        elif kind is Kind.OBJECT:
            found = _exact(name, tail) or _string(entry)
        else:
            found = _unhex(_string(entry)) if kind is Kind.FINGERPRINT else _string(entry)
        columns[column] = found
    return columns | {"data": None, "raw": value} if has_failed else columns


def _exact(name: str, tail: str) -> str:
    """Return the exact text of an object in what follows VIA; empty where the value has not the agent's layout."""
    via = tail.find('"')
    is_last = name == "data" and tail.startswith(BEFORE_DATA, via) and tail.endswith("}}")
    if is_last and ENTRY_BEHIND_DATA not in tail:
        return tail[via + len(BEFORE_DATA) - 1 : -1]
    found = _EXACT[name].match(tail)
    return found[1] if found else ""


def _string(entry: object) -> str | None:
    """Return an entry as text: JSON for all but a text."""
    if entry is None or isinstance(entry, str):
        return entry
    if type(entry) is int:
        return str(entry)
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _unhex(text: str | None) -> bytes | None:
    try:
        return None if text is None else bytes.fromhex("0" * (len(text) % 2) + text)
    except ValueError:
        return None


def _replace_nul(columns: dict[str, object], value: bytes) -> None:
    """Replace what PostgreSQL supports neither in a text nor, as an escape, in JSON; the row keeps its raw bytes."""
    for name in TEXTS:
        text = columns.get(name)
        if not isinstance(text, str):
            continue
        if "\x00" in text or (name in OBJECTS and NUL_IN_JSON in text):
            columns["raw"] = value
            text = _NUL.sub("\\1\ufffd", text) if name in OBJECTS else text
        columns[name] = without_nul(text)


def without_nul(text: str) -> str:
    """Return a text without NUL, and without half a character of UTF-16."""
    return (
        text
        if text.isascii() and "\x00" not in text
        else text.replace("\x00", "\ufffd").encode(errors="replace").decode()
    )


def _timestamp(text: bytes | None) -> datetime | None:
    """Return the time of RFC 3339 with milliseconds, also of the forms of the same length that Spark accepts."""
    if text is None or len(text) != TIMESTAMP_BYTES or not (found := _TIMESTAMP.fullmatch(text)):
        return None
    *parts, fraction = found.groups()
    year, month, day, hour, minute, second = map(int, parts)
    micros = int((fraction or b"")[:6].ljust(6, b"0"))
    try:
        return datetime(year, month, day, hour, minute, second, micros, UTC)
    except ValueError:
        return None


def _moment(digits: bytes) -> datetime | None:
    """Return the time of a number of milliseconds; None for another form, and beyond the years 1 to 9999."""
    if not _NUMBER.fullmatch(digits) or not TIME_MIN <= (number := int(digits)) <= TIME_MAX:
        return None
    return _of_milliseconds(number)


def _of_milliseconds(number: int) -> datetime:
    return _START + timedelta(milliseconds=number)


def _day(time: datetime | None, appended: object) -> date:
    """Return the partition, as `rows.partition_of`."""
    day = time.date() if time is not None and YEARS[0] <= time.year <= YEARS[1] else DAY_OUTSIDE
    age = (appended.date() - day).days if isinstance(appended, datetime) else None
    return day if age is not None and -AHEAD_DAYS_MAX <= age <= PAST_DAYS_MAX else DAY_OUTSIDE


def _stated(type_: str, entries: dict[str, Any]) -> tuple[int, int | None]:
    """Return the contract and the retention that a gateway states in an event of its own."""
    data = entries.get("data") if type_.startswith(TYPE_RESERVED_PREFIX) else None
    contract, retention = map(data.get, ("contract", "retention_seconds")) if isinstance(data, dict) else (None, None)
    return contract if isinstance(contract, int) else VERSION, retention if isinstance(retention, int) else None
