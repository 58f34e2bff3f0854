"""The audit's view of the topic: the headers of each record, read by name and without the job's code."""

import json
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cloud.auditing import leaves
from cloud.auditing.account import is_count
from cloud.committed import Committed
from cloud.gateways import Signers, fits
from cloud.runtime import jvm
from contract.event import TYPE_RESERVED_PREFIX
from contract.fields import exact_text
from contract.record import (
    GATEWAY_BYTES_MAX,
    STATEMENT,
    STATEMENT_BYTES_MAX,
    TYPE_PREFIX,
    VALUE_BYTES_MAX,
    VIA_START,
)

ANSWER_SECONDS_MAX = 30
_CONTENT_DIGITS = 16
TOLD = ("device", "type", "data")
# Not $, which in Java also matches before a line feed at the end.
_LABEL = (r"^[0-9a-f]{16}\z", r"^[0-9]{1,19}\z")


class Topic:
    """A topic, accessed by Kafka's Java client."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, topic: str, properties: dict[str, str]) -> None:
        self._spark = spark
        self._name = topic
        self._settings = {**properties, "bootstrap.servers": bootstrap_servers}
        self._class = partial(jvm.java_class, spark)
        self._client = self._class("org.apache.kafka.clients.admin.AdminClient").create(self._settings)

    def close(self) -> None:
        self._client.close()

    def id(self) -> str:
        """Return the topic's id, which is another one after the topic was recreated."""
        return str(self._describe().topicId().toString())

    def committed(self, group: str) -> dict[int, Committed]:
        found = self._wait(self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
        return {
            entry.getKey().partition(): Committed(int(value.offset()), _optional(value.leaderEpoch()), value.metadata())
            for entry in found.entrySet()
            if entry.getKey().topic() == self._name and (value := entry.getValue()) is not None
        }

    def earliest(self) -> dict[int, int]:
        answers = self._list(self._class("org.apache.kafka.clients.admin.OffsetSpec").earliest())
        return {partition: int(answer.offset()) for partition, answer in answers.items()}

    def latest(self) -> dict[int, tuple[int, int | None]]:
        """Return the end of each partition, and the epoch of its leader."""
        answers = self._list(self._class("org.apache.kafka.clients.admin.OffsetSpec").latest())
        return {partition: (int(one.offset()), _optional(one.leaderEpoch())) for partition, one in answers.items()}

    def values(self, places: set[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """Return the values of the records at these places, as far as the topic has them."""
        first = self.earliest()
        there = {place for place in places if place[1] >= first.get(place[0], place[1] + 1)}
        if not there:
            return {}
        of = {partition: [at for its, at in there if its == partition] for partition in first}
        starts = {partition: min(found, default=first[partition]) for partition, found in of.items()}
        ends = {partition: max(found, default=first[partition] - 1) + 1 for partition, found in of.items()}
        wanted = self._spark.createDataFrame(sorted(there), "partition int, offset bigint")
        found = self.load(starts, ends).join(F.broadcast(wanted), on=["partition", "offset"], how="left_semi")
        rows = found.select("partition", "offset", "value").collect()
        return {(row["partition"], row["offset"]): bytes(row["value"] or b"") for row in rows}

    def load(self, starts: dict[int, int], ends: dict[int, int]) -> DataFrame:
        """Return the records from `starts` up to `ends`, as Spark has them."""
        reader = self._spark.read.format("kafka").option("subscribe", self._name).option("includeHeaders", "true")
        reader = reader.option("startingOffsets", self._offsets(starts)).option("endingOffsets", self._offsets(ends))
        reader = reader.option("kafka.isolation.level", "read_committed")
        return reader.options(**{f"kafka.{name}": value for name, value in self._settings.items()}).load()

    def _list(self, spec: Any) -> dict[int, Any]:
        place_of = partial(self._class("org.apache.kafka.common.TopicPartition"), self._name)
        places = {info.partition(): place_of(info.partition()) for info in self._describe().partitions()}
        answers = self._wait(self._client.listOffsets(dict.fromkeys(places.values(), spec)).all())
        return {partition: answers.get(place) for partition, place in places.items()}

    def _offsets(self, offsets: dict[int, int]) -> str:
        return json.dumps({self._name: {str(partition): offset for partition, offset in offsets.items()}})

    def _describe(self) -> Any:
        return self._wait(self._client.describeTopics([self._name]).allTopicNames()).get(self._name)

    def _wait(self, future: Any) -> Any:
        return future.get(ANSWER_SECONDS_MAX, self._class("java.util.concurrent.TimeUnit").SECONDS)


def _optional(found: Any) -> int | None:
    return int(found.get()) if found.isPresent() else None


def read(topic: DataFrame, *, are_newer: bool = False) -> DataFrame:
    """Return the records' labels, fingerprints, offsets, append times, devices, contents and leaves, and their values.

    A label is null where it is malformed.
    `row_leaf` is that of their rows, where some of them may be newer than this release, and have keys not known here.
    """
    row_leaf = leaves.of_known(F.col("value"), F.unhex(_header("ce_id"))) if are_newer else F.lit(None).cast("binary")
    words = F.split(_header("ce_oncegate"), " ")
    named = topic.select(
        *(F.get(words, place).alias(name) for place, name in enumerate(("gateway", "epoch", "sequence"))),
        _header("ce_id").alias("fingerprint"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.col("timestamp").alias("appended"),
        F.col("key").cast("string").alias("device"),
        content().alias("content"),
        leaves.of_value(F.col("value"), F.unhex(_header("ce_id"))).alias("leaf"),
        row_leaf.alias("row_leaf"),
        "value",
    )
    whole = F.col("epoch").rlike(_LABEL[0]) & F.col("sequence").rlike(_LABEL[1])
    whole &= is_count(F.col("sequence").try_cast("bigint"))
    whole &= F.octet_length("gateway").between(1, GATEWAY_BYTES_MAX)
    return named.withColumns(
        {
            "gateway": F.when(whole, F.col("gateway")),
            "epoch": F.when(whole, F.col("epoch")),
            "sequence": F.when(whole, F.col("sequence").try_cast("bigint")),
        }
    )


def signed(topic: DataFrame, signers: Signers) -> DataFrame:
    """Return the gateways' own events with a MAC by a key of their gateway.

    Of the headers, a MAC covers id and statement alone.
    """
    statement, value = _header(STATEMENT), F.col("value").cast("string")
    is_own = F.contains("value", F.lit(f'"type":"{TYPE_RESERVED_PREFIX}'.encode()))
    is_bounded = (F.octet_length(statement) <= STATEMENT_BYTES_MAX) & (F.octet_length("value") <= VALUE_BYTES_MAX)
    is_signed = F.udf(partial(_is_signed, signers), T.BooleanType(), useArrow=False)
    whole = topic.filter(is_own & is_bounded).filter(is_signed(_header("ce_id"), statement, "value"))
    words = F.split(statement, " ")
    return whole.select(
        F.get(words, 0).alias("gateway"),
        F.get(words, 1).alias("epoch"),
        *(F.get_json_object(value, f"$.{name}").alias(name) for name in ("type", "data")),
    )


def _is_signed(signers: Signers, fingerprint: str | None, statement: str | None, value: bytes) -> bool:
    return fits(signers, (fingerprint or "").encode(), (statement or "").encode().split(b" "), value)


def content() -> Column:
    """Return a digest of the value: after a truncation, other records have the same offsets."""
    return F.substring(F.sha2(F.coalesce("value", F.lit(b"")), 256), 1, _CONTENT_DIGITS)


def said_at(topic: DataFrame, of: DataFrame) -> DataFrame:
    """Return the digests `told` of the records at the places of a frame."""
    placed = topic.withColumnsRenamed({"partition": "kafka_partition", "offset": "kafka_offset"})
    there = placed.join(of, on=["kafka_partition", "kafka_offset"], how="left_semi")
    return there.select("kafka_partition", "kafka_offset", said().alias("told"))


def said() -> Column:
    """Return a digest of device, type and data; as costly as the rest of the audit's reading."""
    type_ = F.substr(_header("ce_type"), F.lit(len(TYPE_PREFIX) + 1))
    return told(F.col("key").cast("string"), type_, _data(F.col("value").cast("string")))


def told(device: Column, type_: Column, data: Column) -> Column:
    """Return a digest of device, type and data."""
    parts = (F.coalesce(part, F.lit("")).cast("binary") for part in (device, type_, data))
    joined = reduce(lambda one, other: F.concat(one, F.lit(b"\0"), other), parts)
    return F.substring(F.sha2(joined, 256), 1, _CONTENT_DIGITS)


def _data(text: Column) -> Column:
    via = VIA_START.decode()
    tail = F.substr(text, F.length(F.substring_index(text, via, 1)) + len(via) + 1)
    return F.regexp_extract(tail, exact_text("data"), 1)


def _header(name: str) -> Column:
    found = F.filter("headers", lambda one: one["key"] == F.lit(name))
    return F.get(found, F.lit(0))["value"].cast("string")
