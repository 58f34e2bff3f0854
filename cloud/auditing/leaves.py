"""The leaf of an event in its gateway's hash chain, as expressions over the table's columns and over a record's value.

The leaf is SHA-256 of the fingerprint and the tail of the value in canonical form; `contract.chain` defines both. It is
written here once more, for Spark, since the audit shares no code with what it audits (decision 21).
"""

import json
from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from contract.fields import CONTAINER, FIELDS, INTEGER, TEXT, Field, Kind

ERASED = "urn:oncegate:erased"
"""The device of rows whose content was erased on purpose (docs/table.md)."""
_HEAD = rf'^\{{"fingerprint":"[0-9a-f]{{32}}","gateway":{TEXT},"epoch":"[0-9a-f]{{16}}","sequence":[0-9]++,'
_NAMES = rf'^"device":{TEXT},"type":{TEXT}'
_ID = rf'({_NAMES},"id":)"({INTEGER})"'
_BOOT = rf'({_NAMES}(?:,"id":(?:{TEXT}|{INTEGER}))?,"boot":)"({INTEGER})"'
_ESCAPED = r'["\\\x00-\x1f]'
_ESCAPES = {sign: json.dumps(sign)[1:-1] for sign in ("\\", '"', *map(chr, range(0x20)))}
"""What JSON escapes in a text, the backslash first, as the gateway does; Spark's own function writes other forms."""

_VALUE = rf'(?:{TEXT}|[^,"{{}}\[\]]++|{CONTAINER})'
_KNOWN = rf',?"(?:{"|".join(field.name for field in FIELDS)})":{_VALUE}'
_UNKNOWN = rf"\G((?:{_KNOWN})*+),{TEXT}:{_VALUE}"
"""Entries of a tail that are known, and one behind them that is not."""


def of_row(columns: Collection[str]) -> Column:
    """Return the leaf of a row of a table with these columns, 32 bytes; null where its content was erased on purpose.

    It is empty where the row lacks what each event has, or keeps a value that is none of a gateway.
    """
    fingerprint, raw = F.col("fingerprint"), F.col("raw")
    known = F.when(raw.isNull(), _digest(fingerprint, _tail(columns))).otherwise(of_value(raw, fingerprint))
    return F.when(F.col("device") == ERASED, F.lit(None)).otherwise(F.coalesce(known, F.lit(b"")))


def of_value(value: Column, fingerprint: Column) -> Column:
    """Return the leaf of a record, given its value and the bytes of its fingerprint; null where it has another form."""
    text = value.cast("string")
    is_ours = text.rlike(_HEAD) & F.endswith(text, F.lit("}"))
    return F.when(is_ours, _digest(fingerprint, _tail_of(text)))


def of_known(value: Column, fingerprint: Column) -> Column:
    """Return the leaf of a record's known entries, as its row has it; null where all entries are known."""
    tail = _tail_of(value.cast("string"))
    known = F.regexp_replace(tail, _UNKNOWN, "$1")
    return F.when(known != tail, _digest(fingerprint, known))


def _tail_of(text: Column) -> Column:
    tail = F.regexp_replace(F.regexp_replace(text, _HEAD, ""), r"\}$", "")
    for pattern in (_ID, _BOOT):
        tail = F.regexp_replace(tail, pattern, "$1$2")
    return tail


def _digest(fingerprint: Column, tail: Column) -> Column:
    return F.unhex(F.sha2(F.concat(fingerprint, tail.cast("binary")), 256))


def _tail(columns: Collection[str]) -> Column:
    """Return the tail of a row; a table that no newer job has opened lacks the latest columns."""
    return F.concat(*(_entry(field) for field in FIELDS if field.column in columns))


def _entry(field: Field) -> Column:
    """Return a field's entry of the value; for a null column empty, or null if the field is required."""
    key = f'{"," if field is not FIELDS[0] else ""}"{field.name}":'
    entry = F.concat(F.lit(key), _text(field.column, field.kind))
    return entry if field.is_required else F.coalesce(entry, F.lit(""))


def _text(column: str, kind: Kind) -> Column:
    match kind:
        case Kind.TEXT:
            return _quoted(column)
        case Kind.NAME:
            return F.when(F.col(column).rlike(rf"^{INTEGER}\z"), F.col(column)).otherwise(_quoted(column))
        case Kind.TIME:
            return F.unix_millis(column).cast("string")
        case Kind.WORD:
            return F.concat(F.lit('"'), F.col(column), F.lit('"'))
        case Kind.FINGERPRINT:
            return F.concat(F.lit('"'), F.lower(F.hex(column)), F.lit('"'))
        case Kind.INTEGER | Kind.OBJECT:
            return F.col(column).cast("string")


def _quoted(name: str) -> Column:
    text = F.col(name)
    escaped = reduce(lambda made, sign: F.replace(made, F.lit(sign), F.lit(_ESCAPES[sign])), _ESCAPES, text)
    return F.concat(F.lit('"'), F.when(text.rlike(_ESCAPED), escaped).otherwise(text), F.lit('"'))
