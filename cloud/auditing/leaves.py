"""The leaf of an event in its gateway's hash chain, as expressions over the table's columns and over a record's value.

The leaf is SHA-256 of the fingerprint and the tail of the value in canonical form; `contract.chain` defines both. It is
written here once more, for Spark and for PostgreSQL, since the audit shares no code with what it audits.
"""

from __future__ import annotations

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
_CAPITALS = [(f"{code:04X}", f"{code:04x}") for code in range(0x20) if chr(code) not in "\b\t\n\f\r" and code % 16 > 9]
"""The escapes of control characters with letters: Spark writes capitals, the gateway small ones."""
_CAPITAL = r"(?<!\\)((?:\\\\)*)\\u{}"
"""An escape that is not itself part of an escaped backslash."""

_VALUE = rf'(?:{TEXT}|[^,"{{}}\[\]]++|{CONTAINER})'
_KNOWN = rf',?"(?:{"|".join(field.name for field in FIELDS)})":{_VALUE}'
_UNKNOWN = rf"\G((?:{_KNOWN})*+),{TEXT}:{_VALUE}"
"""Entries of a tail that are known, and one behind them that is not."""

_NUMBER_SQL = f"'^{INTEGER.replace('*+', '*')}$'"
_IN_SQL = {
    Kind.TEXT: "to_json({})::text",
    Kind.NAME: f"CASE WHEN {{0}} ~ {_NUMBER_SQL} THEN {{0}} ELSE to_json({{0}})::text END",
    Kind.TIME: "(extract(epoch FROM {}) * 1000)::bigint",
    Kind.WORD: "'\"' || {} || '\"'",
    Kind.INTEGER: "{}",
    Kind.OBJECT: "{}",
    Kind.FINGERPRINT: "'\"' || encode({}, 'hex') || '\"'",
}


def row_sql(columns: Collection[str]) -> str:
    """Return the same as `of_row`, as an expression of PostgreSQL for a table with these columns."""
    entries = [f"'{_key(field)}' || {_IN_SQL[field.kind].format(field.column)}" for field in _present(columns)]
    tail = f"convert_to(concat({', '.join(entries)}), 'UTF8')"
    return f"CASE WHEN device IS DISTINCT FROM '{ERASED}' THEN encode(sha256(fingerprint || {tail}), 'hex') END"


def _present(columns: Collection[str]) -> list[Field]:
    """Return the fields for which a table has a column: one that no newer job has opened lacks the latest."""
    return [field for field in FIELDS if field.column in columns]


def _key(field: Field) -> str:
    """Return a field's key and what stands before it."""
    return f'{"," if field is not FIELDS[0] else ""}"{field.name}":'


def of_row(columns: Collection[str]) -> Column:
    """Return the leaf of a row of a table with these columns, 32 bytes; null where its content was erased on purpose.

    It is empty where the row lacks what each event has.
    """
    return (
        F.when(F.col("device") == ERASED, F.lit(None))
        .when(F.col("raw").isNull(), F.coalesce(_digest(F.col("fingerprint"), _tail(columns)), F.lit(b"")))
        .otherwise(of_raw(F.col("raw"), F.col("fingerprint")))
    )


def of_raw(raw: Column, fingerprint: Column) -> Column:
    """Return the leaf of a row that keeps the value of its record; empty where that is no value of a gateway."""
    return F.coalesce(of_value(raw, fingerprint), F.lit(b""))


def of_value(value: Column, fingerprint: Column) -> Column:
    """Return the leaf of a record, given its value and the bytes of its fingerprint; null where it has another form."""
    text = value.cast("string")
    is_ours = text.rlike(_HEAD) & F.endswith(text, F.lit("}"))
    return F.when(is_ours, _digest(fingerprint, _tail_of(text)))


def of_known(value: Column, fingerprint: Column) -> Column:
    """Return the leaf that the row of a record has here; null where nothing in its value is unknown."""
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
    return F.concat(*(_entry(field) for field in _present(columns)))


def _entry(field: Field) -> Column:
    """Return a field's entry of the value; empty where its column is null, null where each event has it."""
    entry = F.concat(F.lit(_key(field)), _text(field.column, field.kind))
    return entry if field.is_required else F.coalesce(entry, F.lit(""))


def _text(column: str, kind: Kind) -> Column:
    match kind:
        case Kind.TEXT:
            return _quoted(column)
        case Kind.NAME:
            return _scalar(column)
        case Kind.TIME:
            return F.unix_millis(column).cast("string")
        case Kind.WORD:
            return F.concat(F.lit('"'), F.col(column), F.lit('"'))
        case Kind.FINGERPRINT:
            return F.concat(F.lit('"'), F.lower(F.hex(column)), F.lit('"'))
        case Kind.INTEGER | Kind.OBJECT:
            return F.col(column).cast("string")


def _with_small_letters(text: Column) -> Column:
    """Return a JSON text that Spark has written, with the escapes of Python's encoder."""
    written = reduce(
        lambda text, form: F.regexp_replace(text, _CAPITAL.format(form[0]), rf"$1\\u{form[1]}"), _CAPITALS, text
    )
    return F.when(F.contains(text, F.lit(r"\u00")), written).otherwise(text)


def _scalar(name: str) -> Column:
    return F.when(F.col(name).rlike(rf"^{INTEGER}\z"), F.col(name)).otherwise(_quoted(name))


def _quoted(name: str) -> Column:
    """Return a text as JSON."""
    written = F.to_json(F.struct(F.col(name).alias("_")))  # {"_":"..."}
    text = F.substr(written, F.lit(6), F.length(written) - 6)
    return F.when(F.col(name).isNotNull(), _with_small_letters(text))
