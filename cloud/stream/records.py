"""Records: the headers as columns, and whether a record is well-formed, by native functions of Spark.

The value is not decoded here. A record that is not well-formed gets a reason, keeps its headers, and has a dedup key of
its own, so that it is no duplicate of a good record with the same fingerprint. The key of an event whose id may be
reused contains the span of its acceptance (`id_reuse`).
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.gateways import KEYS_MAX, Keys
from cloud.runtime import jvm
from cloud.table import id_reuse
from cloud.table.layout import TIMESTAMP_BYTES, Reason
from contract.event import TIME_MAX, TIME_MIN, TYPE_RESERVED_PREFIX
from contract.fields import RETENTION_SECONDS, VERSION
from contract.mac import MAC_DIGITS
from contract.record import (
    CONTENT_TYPE,
    GATEWAY_BYTES_MAX,
    HEADERS,
    MAC_WORD,
    NAME_BYTES_MAX,
    NUMBER_MAX,
    SPECVERSION,
    STATEMENT,
    STATEMENT_BYTES_MAX,
    STATEMENT_WORDS,
    TYPE_PREFIX,
    UNKNOWN,
    VALUE_BYTES_MAX,
    VALUE_PREFIX,
    ClockTrust,
    SharedDay,
)

_PARTITIONS_MAX = 1 << 20
_TIMESTAMPS = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
# Not $, which in Java also matches before a line feed at the end.
_COUNT, _NUMBER = r"^(0|[1-9][0-9]{0,15})\z", r"^-?(0|[1-9][0-9]{0,18})\z"
_SAID = "gateway STRING, epoch STRING, sequence STRING, device STRING, type STRING"
_CONTROL = r"[\x00-\x1f\x7f]"
_BLOCK_BYTES = 64
"""Of SHA-256."""
_LOCAL_MAX = 10_000
"""Gateways; in the plan itself two of them save 0.2 s a batch, and 100,000 cost 0.3."""
_STARTS = [(f"inner_{number}", f"outer_{number}") for number in range(KEYS_MAX)]

OBSERVATION = "records"


def key_frame(spark: SparkSession, keys: Keys, topic: str) -> DataFrame:
    """Return the keys of each gateway as _STARTS: what the inner and the outer hash begin with (RFC 2104 section 2)."""
    names = [name for pair in _STARTS for name in pair]
    rows = []
    for gateway, found in keys.items():
        starts = [start for key in found for start in _starts(key, topic)]
        rows.append((gateway, *starts, *[None] * (len(names) - len(starts))))
    frame = spark.createDataFrame(rows, f"gateway string, {', '.join(f'{name} binary' for name in names)}")
    return jvm.local(frame) if len(rows) <= _LOCAL_MAX else frame


def read_records(
    topic: DataFrame, retention_seconds: int = RETENTION_SECONDS, keys: DataFrame | None = None
) -> DataFrame:
    """Return the records judged; `reason` is null for those that are well-formed, and of a gateway's key.

    Without `keys` (`key_frame`) any well-formed record is that of the gateway that it names. Three columns are for
    `observed` alone: `has_unknown`, whether a record has words or headers that are not known here; `newer`, contract
    and gateway, with a space between them, of one that states a newer contract; `retention`, so of one that states
    another.
    """
    named = topic.select(
        F.col("value"),
        F.col("key").alias("kafka_key"),
        F.col("headers"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.when(_is_timestamp("timestamp"), F.col("timestamp")).alias("appended"),
        _header("ce_specversion").alias("specversion"),
        _header("content-type").alias("content_type"),
        _header("ce_type").alias("type"),
        _header("ce_source").alias("source"),
        _header("ce_id").alias("id"),
        _timestamp(_header("ce_time")).alias("event_time"),
        _header(STATEMENT).alias("statement"),
    )
    short = F.when(F.octet_length("statement") <= STATEMENT_BYTES_MAX, F.col("statement"))
    stated = named.withColumn("words", F.split(short, " ", -1)).select(
        "*",
        F.get("words", 0).alias("gateway"),
        F.get("words", 1).alias("epoch"),
        F.get("words", 2).alias("sequence"),
        _timestamp_of_milliseconds(F.get("words", 3)).alias("received"),
        F.get("words", 4).alias("clock"),
        F.get("words", 5).alias("shared"),
        F.get("words", 6).alias("bound_text"),
        _timestamp_of_milliseconds(F.get("words", 6)).alias("bound"),
    )
    reason = _reason()
    if keys is not None:
        stated = stated.join(F.broadcast(keys), on="gateway", how="left")
        # First: what no gateway has signed says nothing of any label, whatever else is wrong with it.
        reason = F.when(~_is_authentic(), F.lit(Reason.MAC.value)).otherwise(reason)
    keyed = _keyed(stated.withColumn("reason", reason), retention_seconds)
    # Spark writes a batch's time into the generated code. A coalesce without effect ends a unit of code, so that only
    # the short one after it is compiled in every batch.
    return keyed.coalesce(_PARTITIONS_MAX).select("*", F.current_timestamp().alias("seen"))


def observed(records: DataFrame) -> DataFrame:
    """Return the records, of which Spark reports each batch's number, oldest append (in ms since 1970 UTC) and news."""
    watched = records.observe(
        OBSERVATION,
        F.count(F.lit(1)).alias("records"),
        F.min(F.unix_millis("appended")).alias("oldest"),
        F.count_if("has_unknown").alias("unknown"),
        F.max("newer").alias("newer"),
        F.max("retention").alias("retention"),
    )
    return watched.drop("has_unknown", "newer", "retention")


def _starts(key: bytes, topic: str) -> tuple[bytes, bytes]:
    whole = key.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (bytes(octet ^ pad for octet in whole) for pad in (0x36, 0x5C))
    return inner + topic.encode() + b"\n", outer


def _header(name: str) -> Column:
    """Return a header's text: by its position, by its name only where that fails; null where there is none."""
    at_position = F.get("headers", HEADERS.index(name))
    by_name = F.get(F.filter("headers", lambda one: one["key"] == F.lit(name)), 0)
    found = F.when(at_position["key"] == F.lit(name), at_position["value"])
    return found.otherwise(by_name["value"]).cast("string")


def _keyed(judged: DataFrame, retention_seconds: int) -> DataFrame:
    bad = F.col("reason").isNotNull()
    place = F.concat_ws("/", F.lit("bad"), "kafka_partition", "kafka_offset").cast("binary")
    fingerprint = F.unhex("id")
    spanned = F.concat(fingerprint, id_reuse.span(retention_seconds))
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
        F.when(~bad & _bound_is_implied(), F.col("bound")).alias("bound"),
        "appended",
        "kafka_partition",
        "kafka_offset",
        "value",
        "kafka_key",
        F.when(bad, F.col("headers")).alias("headers"),
        ((F.size("words") > MAC_WORD + 1) | (F.size("headers") > len(HEADERS))).alias("has_unknown"),
        *(
            F.when(~bad & F.startswith("type", F.lit(TYPE_PREFIX + TYPE_RESERVED_PREFIX)), news).alias(name)
            for name, news in _news(retention_seconds).items()
        ),
    )


def _news(retention_seconds: int) -> dict[str, Column]:
    """Return gateways' statements that differ from this job's: a newer contract, another retention."""
    contract, retention = (
        F.get_json_object(F.col("value").cast("string"), f"$.data.{name}").try_cast("int")
        for name in ("contract", "retention_seconds")
    )
    newer, other = contract > VERSION, retention != retention_seconds
    return {
        "newer": F.when(newer, F.concat_ws(" ", contract, "gateway")),
        "retention": F.when(other, F.concat_ws(" ", retention, "gateway")),
    }


def _reason() -> Column:
    """Return the name of the first check that a record fails; null for none."""
    checks = {
        Reason.HEADERS: _headers_are_ours(),
        Reason.FINGERPRINT: F.col("id").rlike(r"^[0-9a-f]{32}\z"),
        Reason.LABEL: F.col("epoch").rlike(r"^[0-9a-f]{16}\z")
        & F.col("sequence").rlike(_COUNT)
        & (F.col("sequence").try_cast("bigint") <= NUMBER_MAX),
        Reason.TIMESTAMPS: _is_timestamp("event_time")
        & _is_timestamp("received")
        & ((F.col("bound_text") == UNKNOWN) | _is_timestamp("bound")),
        Reason.CLOCK: F.col("clock").isin([clock.value for clock in ClockTrust]),
        Reason.SHARED: F.col("shared").isin([shared.value for shared in SharedDay]),
        Reason.VALUE: _value_is_whole(),
        Reason.CONTRADICTION: _value_says_the_same() & _value_has_the_times(),
    }
    failed = [F.when(~F.coalesce(check, F.lit(False)), F.lit(reason.value)) for reason, check in checks.items()]
    return F.coalesce(*failed)


def _is_authentic() -> Column:
    """Whether the eighth word is the MAC of one of the gateway's keys; see `contract.mac` for what it covers."""
    said = F.substring_index("statement", " ", MAC_WORD)
    message = F.concat(F.concat("id", F.lit("\n"), said, F.lit("\n")).cast("binary"), F.col("value"))
    word = F.get("words", MAC_WORD)
    fits = F.lit(False)
    for inner, outer in _STARTS:
        digest = F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, message), 256))), 256)
        fits |= F.coalesce(F.substring(digest, 1, MAC_DIGITS) == word, F.lit(False))
    return fits


def _is_timestamp(name: str) -> Column:
    """Whether a timestamp is within the years 1 to 9999, which every database supports."""
    first, last = (F.lit(year).cast("timestamp") for year in _TIMESTAMPS)
    return F.col(name).between(first, last)


def _headers_are_ours() -> Column:
    return (
        (F.col("specversion") == SPECVERSION)
        & (F.col("content_type") == CONTENT_TYPE)
        & F.startswith("type", F.lit(TYPE_PREFIX))
        & (F.octet_length("type") <= NAME_BYTES_MAX)
        & F.octet_length("source").between(1, NAME_BYTES_MAX)
        & (F.octet_length("kafka_key") <= NAME_BYTES_MAX)
        & (F.size("words") >= STATEMENT_WORDS)
        & F.octet_length("gateway").between(1, GATEWAY_BYTES_MAX)
        & ~F.col("gateway").rlike(_CONTROL)
    )


def _value_is_whole() -> Column:
    prefix = F.concat(F.lit(VALUE_PREFIX), F.col("id").cast("binary"), F.lit(b'"'))
    return (
        F.startswith("value", prefix)
        & F.endswith("value", F.lit(b"}"))
        & (F.octet_length("value") <= VALUE_BYTES_MAX)
        & F.is_valid_utf8(F.col("value").cast("string"))
    )


def _value_says_the_same() -> Column:
    """Whether the value begins with gateway, label, device and type of key and headers."""
    device, type_ = F.col("kafka_key").cast("string"), _after(TYPE_PREFIX, F.col("type"))
    head = F.concat(
        *(F.lit(VALUE_PREFIX.decode()), F.col("id"), F.lit('","gateway":"'), "gateway", F.lit('","epoch":"'), "epoch"),
        *(F.lit('","sequence":'), "sequence", F.lit(',"device":"'), device, F.lit('","type":"'), type_, F.lit('"')),
    )
    is_same = F.startswith("value", head.cast("binary"))
    # A name with a quote, a backslash or a control character is escaped in the value; hardly any event comes here.
    said = F.from_json(F.col("value").cast("string"), _SAID)
    return is_same | (said == F.struct("gateway", "epoch", "sequence", device.alias("device"), type_.alias("type")))


def _value_has_the_times() -> Column:
    """Whether headers, statement and value agree on the times that locate duplicates: a MAC covers no `ce_time`.

    A record sent again with later times would be taken for fresh, and be in the table twice.
    """

    def has(name: str, milliseconds: Column) -> Column:
        entry = F.concat(F.lit(f',"{name}":'), milliseconds, F.lit(","))
        return F.contains("value", entry.cast("binary"))

    is_bound = (F.col("bound") == F.col("event_time")) & has("time", F.col("bound_text"))
    return has("received", F.get("words", 3)) & ((F.col("shared") != SharedDay.TIME.value) | is_bound)


def _bound_is_implied() -> Column:
    """Whether a bound is the one that the acceptance implies; another one would skip look-ups."""
    return (F.col("shared") != SharedDay.LABEL.value) | (F.col("bound") == F.col("received"))


def _after(prefix: str, text: Column) -> Column:
    """Return a text without its prefix; by bytes, since Spark counts a text's characters before it takes a part."""
    return F.substring(text.cast("binary"), len(prefix.encode()) + 1, 1 << 30).cast("string")


def _timestamp_of_milliseconds(text: Column) -> Column:
    """Return the timestamp of a decimal number; null for other forms, and for years beyond those of `_is_timestamp`."""
    number = F.when(text.rlike(_NUMBER), text.try_cast("bigint"))
    return F.timestamp_millis(F.when(number.between(TIME_MIN, TIME_MAX), number))


def _timestamp(text: Column) -> Column:
    """Return the timestamp of RFC 3339 with milliseconds; null for other forms, some of which a cast would accept."""
    return F.when((F.octet_length(text) == TIMESTAMP_BYTES) & F.endswith(text, F.lit("Z")), text.try_cast("timestamp"))
