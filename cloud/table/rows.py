"""The rows of the table."""

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cloud.table import devices, layout
from cloud.table.layout import AHEAD_DAYS_MAX, BEFORE_DATA, DAY_OUTSIDE, ENTRY_BEHIND_DATA, PAST_DAYS_MAX, VIA, YEARS
from contract.event import TIME_MAX, TIME_MIN
from contract.fields import FIELDS, OBJECTS, Field, Kind, exact_text
from contract.record import SharedDay

TYPES: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (BinaryType(), StringType(), TimestampType(), LongType(), IntegerType(), DateType())
}
COLUMNS = {name: TYPES[kind] for name, kind in layout.COLUMNS.items()}
SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])

PARTITIONED_BY = ("day",)
_INTEGERS = (Kind.INTEGER, Kind.TIME)
_VALUE = StructType(
    [StructField(field.name, LongType() if field.kind in _INTEGERS else StringType()) for field in FIELDS]
    + [StructField("_corrupt", StringType())]
)
# Spark's JSON functions rewrite numbers (1.10 becomes 1.1) and characters (😀 becomes \ud83d\ude00), so the texts of
# objects are cut out of the value.


def day_of() -> Column:
    """Return the UTC day of the time where that is in the identity, else of acceptance: the same for all duplicates."""
    time = F.coalesce(_identity_time(), F.col("received"))
    return F.when(F.year(time).between(*YEARS), F.to_date(time)).otherwise(F.lit(DAY_OUTSIDE))


def partition_of() -> Column:
    """Return the partition: the day, or DAY_OUTSIDE; a duplicate that arrives much later may be in the other one."""
    age_days = F.datediff(F.to_date("appended"), day_of())
    return F.when(age_days.between(-AHEAD_DAYS_MAX, PAST_DAYS_MAX), day_of()).otherwise(F.lit(DAY_OUTSIDE))


def decode(survivors: DataFrame, known: DataFrame | None = None, also: Sequence[str] = ()) -> DataFrame:
    """Return the survivors as rows of SCHEMA; a value that cannot be decoded keeps its raw bytes, and has no data.

    `known` are the devices to be joined; `also` names columns of the survivors to be added to those of SCHEMA.
    """
    # Spark analyses the plan again for each further selection, which took 50 ms of every batch.
    own = survivors.select("*", *_decoded()).select(*_own_columns(), *also)
    return own if known is None else devices.join(own, known).select(*COLUMNS, *also)


# Columns are created once: they are 2,200 calls into the JVM, which took a third of a second in every batch.
@cache
def _decoded() -> list[Column]:
    """Return the columns that are read from the value, in an order in which each may use those before it.

    Spark computes an expression again for each other one that contains it, but a named column only once.
    """
    columns = {
        "text": F.col("value").cast("string"),
        "parsed": F.from_json("text", _VALUE, {"columnNameOfCorruptRecord": "_corrupt"}),
        "day": partition_of(),
        **_data_text(),
    }
    return [column.alias(name) for name, column in columns.items()]


@cache
def _own_columns() -> list[Column]:
    """Return the columns of SCHEMA; those of the devices are null."""
    objects = {name: _object(name) for name in OBJECTS}
    columns = {**_columns(), **objects, "raw": F.when(_failed(), F.col("value"))}
    return [columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in COLUMNS.items()]


def _columns() -> dict[str, Column]:
    from_value = {field.column: _of_value(field) for field in FIELDS}
    from_record = (
        *("fingerprint", "type", "received", "clock", "appended", "gateway", "epoch", "sequence"),
        *("kafka_partition", "kafka_offset", "day"),
    )
    return {
        **from_value,
        **{name: F.col(name) for name in from_record},
        "device": F.col("kafka_key").cast("string"),  # which the value repeats
        "event_time": F.coalesce(from_value["event_time"], _identity_time()),
        "processed_at": F.col("seen"),
    }


def _of_value(field: Field) -> Column:
    parsed = F.col(f"parsed.{field.name}")
    match field.kind:
        case Kind.TIME:
            return F.timestamp_millis(F.when(_is_time(parsed), parsed))
        case Kind.FINGERPRINT:
            return F.unhex(parsed)
        case _:
            return parsed


def _identity_time() -> Column:
    return F.when(F.col("shared") == SharedDay.TIME.value, F.col("event_time"))


def _object(name: str) -> Column:
    """Return the exact text of an object where the value has the agent's layout, else equal JSON."""
    parsed = F.col(f"parsed.{name}")
    text = F.col("data_text") if name == "data" else F.regexp_extract("tail", exact_text(name), 1)
    found = F.when(parsed.isNotNull(), F.coalesce(F.nullif(text, F.lit("")), parsed))
    return F.when(_failed(), F.lit(None)).otherwise(found) if name == "data" else found


def _data_text() -> dict[str, Column]:
    """Return the text of `data`; where nothing follows it, as is usual, at far less cost than a regular expression.

    Positions are in bytes, since Spark counts a text's characters again for each part that is taken of it.
    """
    tail, via_bytes = F.col("tail"), F.col("via_bytes")
    before = F.lit(len(BEFORE_DATA))
    is_ours = F.substr(_bytes(tail), via_bytes + 1, before) == F.lit(BEFORE_DATA.encode())
    is_last = is_ours & F.endswith(tail, F.lit("}}")) & ~F.contains(tail, F.lit(ENTRY_BEHIND_DATA))
    at_the_end = F.substr(_bytes(tail), via_bytes + before, F.octet_length(tail) - via_bytes - before).cast("string")
    return {
        "via_at": F.octet_length(F.substring_index("text", VIA, 1)) + len(VIA) + 1,
        "tail": F.substr("value", F.col("via_at")).cast("string"),  # empty where there is no VIA
        "via_bytes": F.octet_length(F.substring_index(tail, '"', 1)),
        "data_text": F.coalesce(F.when(is_last, at_the_end), F.regexp_extract(tail, exact_text("data"), 1)),
    }


def _bytes(text: Column) -> Column:
    return text.cast("binary")


def _failed() -> Column:
    """Whether a value is not JSON, lacks a required entry, or has a time outside the years 1 to 9999."""
    required = [F.col(f"parsed.{field.name}").isNull() for field in FIELDS if field.is_required]
    times = [F.col(f"parsed.{field.name}") for field in FIELDS if field.kind is Kind.TIME]
    wrong = [F.coalesce(~_is_time(time), F.lit(False)) for time in times]
    return reduce(or_, (*required, *wrong), F.col("parsed._corrupt").isNotNull())


def _is_time(milliseconds: Column) -> Column:
    """Whether a time is within the years 1 to 9999, null without one; Spark fails on some other times."""
    return milliseconds.between(TIME_MIN, TIME_MAX)
