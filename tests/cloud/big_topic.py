"""A topic and a table of any size, created by Spark: records with all that an audit reads, and their rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

GATEWAYS = 10
EPOCH = "00000000000000e1"


def events(spark: SparkSession, count: int) -> DataFrame:
    """Return number, fingerprint (hex), gateway and sequence of `count` events."""
    number = F.col("id")
    return spark.range(count).select(
        number.alias("number"),
        F.md5(number.cast("string")).alias("fingerprint"),
        F.format_string("gw-%d", number % GATEWAYS).alias("gateway"),
        (F.floor(number / GATEWAYS) + 1).alias("sequence"),
    )


def send(told: DataFrame, bootstrap_servers: str, topic: str) -> None:
    """Write a record for each into partition 0."""
    headers = F.array(
        _header("ce_id", F.col("fingerprint")),
        _header("ce_oncegate", F.concat_ws(" ", "gateway", F.lit(EPOCH), "sequence", F.lit("0 trusted none -"))),
    )
    value = F.concat(F.lit('{"fingerprint":"'), F.col("fingerprint"), F.lit('"}'))
    records = told.select(F.lit("device").alias("key"), value.alias("value"), headers.alias("headers"))
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.option("topic", topic).option("includeHeaders", "true").save()


def rows(told: DataFrame) -> DataFrame:
    """Return the rows of a table that has the events."""
    return told.select(
        F.unhex("fingerprint").alias("fingerprint"),
        F.lit("reading").alias("type"),
        F.col("gateway"),
        F.lit(EPOCH).alias("epoch"),
        F.col("sequence"),
        F.current_timestamp().alias("received"),
        F.lit("2026-01-01").cast("date").alias("day"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
