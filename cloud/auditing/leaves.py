"""The leaf of an event in its gateway's hash chain, as expressions over the table's columns and over a record's value.

The leaf is SHA-256 of the fingerprint and the tail of the value in canonical form; `contract.chain` defines both. It is
written here once more, for Spark and for PostgreSQL, since the audit shares no code with what it audits.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

ERASED = "urn:oncegate:erased"
"""The device of rows whose content was erased on purpose (docs/table.md)."""
_TEXT = r'"(?:[^"\\]|\\.)*+"'
_INTEGER = r"-?(?:0|[1-9][0-9]*+)"
_HEAD = rf'^\{{"fingerprint":"[0-9a-f]{{32}}","gateway":{_TEXT},"epoch":"[0-9a-f]{{16}}","sequence":[0-9]++,'
_NAMES = rf'^"device":{_TEXT},"type":{_TEXT}'
_ID = rf'({_NAMES},"id":)"({_INTEGER})"'
_BOOT = rf'({_NAMES}(?:,"id":(?:{_TEXT}|{_INTEGER}))?,"boot":)"({_INTEGER})"'
_CAPITALS = [(f"{code:04X}", f"{code:04x}") for code in range(0x20) if chr(code) not in "\b\t\n\f\r" and code % 16 > 9]
"""The escapes of control characters with letters: Spark writes capitals, the gateway small ones."""
_CAPITAL = r"(?<!\\)((?:\\\\)*)\\u{}"
"""An escape that is not itself part of an escaped backslash."""

_NUMBER_SQL = f"'^{_INTEGER.replace('*+', '*')}$'"
ROW_SQL = f"""CASE WHEN device IS DISTINCT FROM '{ERASED}' THEN encode(sha256(fingerprint || convert_to(concat(
    '"device":', to_json(device), ',"type":', to_json(type),
    ',"id":' || CASE WHEN id ~ {_NUMBER_SQL} THEN id ELSE to_json(id)::text END,
    ',"boot":' || CASE WHEN boot ~ {_NUMBER_SQL} THEN boot ELSE to_json(boot)::text END,
    ',"time":' || (extract(epoch FROM event_time) * 1000)::bigint, ',"offset_ms":' || offset_ms,
    ',"received":', (extract(epoch FROM received) * 1000)::bigint, ',"via":"', via, '"',
    ',"data":' || data, ',"units":' || units,
    ',"possible_duplicate_of":"' || encode(possible_duplicate_of, 'hex') || '"'), 'UTF8')), 'hex') END"""
"""The same as `of_row`, as an expression of PostgreSQL."""


def of_row() -> Column:
    """Return the leaf of a row, 32 bytes; null where its content was erased on purpose, empty without a device."""
    return (
        F.when(F.col("device") == ERASED, F.lit(None))
        .when(F.col("raw").isNull(), F.coalesce(_digest(F.col("fingerprint"), _tail()), F.lit(b"")))
        .otherwise(of_raw(F.col("raw"), F.col("fingerprint")))
    )


def of_raw(raw: Column, fingerprint: Column) -> Column:
    """Return the leaf of a row that keeps the value of its record; empty where that is no value of a gateway."""
    return F.coalesce(of_value(raw, fingerprint), F.lit(b""))


def of_value(value: Column, fingerprint: Column) -> Column:
    """Return the leaf of a record, given its value and the bytes of its fingerprint; null where it has another form."""
    text = value.cast("string")
    tail = F.regexp_replace(F.regexp_replace(text, _HEAD, ""), r"\}$", "")
    for pattern in (_ID, _BOOT):
        tail = F.regexp_replace(tail, pattern, "$1$2")
    return F.when(text.rlike(_HEAD) & F.endswith(text, F.lit("}")), _digest(fingerprint, tail))


def _digest(fingerprint: Column, tail: Column) -> Column:
    return F.unhex(F.sha2(F.concat(fingerprint, tail.cast("binary")), 256))


def _tail() -> Column:
    times = {name: F.unix_millis(name).cast("string") for name in ("event_time", "received")}
    copied = F.concat(F.lit('"'), F.lower(F.hex("possible_duplicate_of")), F.lit('"'))
    return F.concat(
        F.lit('"device":'),
        _quoted("device"),
        F.lit(',"type":'),
        _quoted("type"),
        _entry("id", _scalar("id")),
        _entry("boot", _scalar("boot")),
        _entry("time", times["event_time"]),
        _entry("offset_ms", F.col("offset_ms").cast("string")),
        _entry("received", times["received"]),
        F.concat(F.lit(',"via":"'), F.col("via"), F.lit('"')),
        _entry("data", F.col("data")),
        _entry("units", F.col("units")),
        _entry("possible_duplicate_of", copied),
    )


def _with_small_letters(text: Column) -> Column:
    """Return a JSON text that Spark has written, with the escapes of Python's encoder."""
    written = reduce(
        lambda text, form: F.regexp_replace(text, _CAPITAL.format(form[0]), rf"$1\\u{form[1]}"), _CAPITALS, text
    )
    return F.when(F.contains(text, F.lit(r"\u00")), written).otherwise(text)


def _entry(name: str, text: Column) -> Column:
    """Return an entry of the value; empty where its column is null."""
    return F.coalesce(F.concat(F.lit(f',"{name}":'), text), F.lit(""))


def _scalar(name: str) -> Column:
    return F.when(F.col(name).rlike(rf"^{_INTEGER}\z"), F.col(name)).otherwise(_quoted(name))


def _quoted(name: str) -> Column:
    """Return a text as JSON."""
    written = F.to_json(F.struct(F.col(name).alias("_")))  # {"_":"..."}
    text = F.substr(written, F.lit(6), F.length(written) - 6)
    return F.when(F.col(name).isNotNull(), _with_small_letters(text))
