"""Records: the headers as columns, and whether a record is well-formed, by cheap native checks.

The value is not decoded here. A record that is not well-formed keeps its reason and its headers, and gets a dedup
key of its own: it must not claim the fingerprint of its good twin. So does one that may be equal to an earlier event
and yet another (`reuse.py`).
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cloud.stream.headers import header
from cloud.table import id_reuse
from contract.record import CONTENT_TYPE, SEQUENCE_DIGITS, SPECVERSION, TYPE_PREFIX, VALUE_PREFIX, ClockTrust, Shared

_PARTITIONS_MAX = 1 << 20
_MOMENTS = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
_MOMENT_BYTES = len("2026-01-01T00:00:00.000Z")

COLUMNS = (
    "key",
    "reason",
    "seen",
    "fingerprint",
    "type",
    "gateway",
    "epoch",
    "sequence",
    "event_time",
    "received",
    "clock",
    "shared",
    "bound",
    "appended",
    "kafka_partition",
    "kafka_offset",
    "value",
    "kafka_key",
    "headers",
)


@dataclass(frozen=True, slots=True)
class Spans:
    """How long the gateways remember, in seconds."""

    retention_seconds: int = 7 * 86_400


def read_records(topic: DataFrame, spans: Spans) -> DataFrame:
    """Return the records as COLUMNS; `reason` is null for those that are well-formed."""
    named = topic.select(
        F.col("value"),
        F.col("key").alias("kafka_key"),
        F.col("headers"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.when(_is_moment("timestamp"), F.col("timestamp")).alias("appended"),
        header("ce_specversion").alias("specversion"),
        header("content-type").alias("content_type"),
        header("ce_type").alias("type"),
        header("ce_source").alias("source"),
        header("ce_id").alias("id"),
        header("ce_gateway").alias("gateway"),
        header("ce_epoch").alias("epoch"),
        header("ce_sequence").alias("sequence"),
        _moment("ce_time").alias("event_time"),
        _moment("ce_recordedtime").alias("received"),
        header("ce_clock").alias("clock"),
        header("ce_shared").alias("shared"),
        header("ce_bound").alias("bound_text"),
        _moment("ce_bound").alias("bound"),
    )
    keyed = _keyed(named.withColumn("reason", _reason()), spans)
    # Spark writes a batch's time into the code that it makes of the columns. Beyond a coalesce that changes nothing the
    # code is another, and short: what is above is compiled once, and not in every batch.
    seen = F.current_timestamp().alias("seen")
    return keyed.coalesce(_PARTITIONS_MAX).select(*(seen if name == "seen" else name for name in COLUMNS))


def _keyed(judged: DataFrame, spans: Spans) -> DataFrame:
    bad = F.col("reason").isNotNull()
    place = F.concat_ws("/", F.lit("bad"), "kafka_partition", "kafka_offset").cast("binary")
    fingerprint = F.unhex("id")
    spanned = F.concat(fingerprint, id_reuse.span(spans.retention_seconds))
    return judged.select(
        F.when(bad, place).when(id_reuse.is_without_time(), spanned).otherwise(fingerprint).alias("key"),
        "reason",
        F.when(~bad, fingerprint).alias("fingerprint"),
        _after(TYPE_PREFIX, F.col("type")).alias("type"),
        "gateway",
        "epoch",
        F.col("sequence").try_cast("bigint").alias("sequence"),
        *(F.when(~bad, F.col(name)).alias(name) for name in ("event_time", "received")),
        "clock",
        "shared",
        F.when(~bad, F.col("bound")).alias("bound"),
        "appended",
        "kafka_partition",
        "kafka_offset",
        "value",
        "kafka_key",
        F.when(bad, F.col("headers")).alias("headers"),
    )


def _reason() -> Column:
    """Return the first check that a record fails."""
    checks = {
        "headers": _headers_are_ours(),
        "fingerprint": F.col("id").rlike("^[0-9a-f]{32}$"),
        "label": F.col("epoch").rlike("^[0-9a-f]{16}$")
        & F.col("sequence").rlike(f"^[0-9]{{{SEQUENCE_DIGITS}}}$")
        & F.col("sequence").try_cast("bigint").isNotNull(),
        "moments": _is_moment("event_time")
        & _is_moment("received")
        & (F.col("bound_text").isNull() | _is_moment("bound")),
        "clock": F.col("clock").isin([clock.value for clock in ClockTrust]),
        "shared": F.col("shared").isin([shared.value for shared in Shared]),
        "value": _value_is_whole(),
    }
    failed = [F.when(~F.coalesce(check, F.lit(False)), F.lit(name)) for name, check in checks.items()]
    return F.coalesce(*failed)


def _is_moment(name: str) -> Column:
    """Whether a moment is of the years that every database has."""
    first, last = (F.lit(year).cast("timestamp") for year in _MOMENTS)
    return F.col(name).between(first, last)


def _headers_are_ours() -> Column:
    return (
        (F.col("specversion") == SPECVERSION)
        & (F.col("content_type") == CONTENT_TYPE)
        & F.startswith("type", F.lit(TYPE_PREFIX))
        & (F.octet_length("source") > 0)
        & (F.octet_length("gateway") > 0)
    )


def _value_is_whole() -> Column:
    front = F.concat(F.lit(VALUE_PREFIX), F.col("id").cast("binary"), F.lit(b'"'))
    return F.startswith("value", front) & F.endswith("value", F.lit(b"}"))


def _after(prefix: str, text: Column) -> Column:
    """Cut a prefix off; of bytes, since Spark counts a text's characters before it takes a part of it."""
    return F.substring(text.cast("binary"), len(prefix.encode()) + 1, 1 << 30).cast("string")


def _moment(name: str) -> Column:
    """Read RFC 3339 with milliseconds, as records hold it, and nothing else that a cast would take."""
    text = header(name)
    return F.when((F.octet_length(text) == _MOMENT_BYTES) & F.endswith(text, F.lit("Z")), text.try_cast("timestamp"))
