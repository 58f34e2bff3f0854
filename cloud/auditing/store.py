"""The tables in which an audit stores its results for the next one. All steps may be repeated after a crash.

The audit before may be of an older or a newer release: a column that is not there is read as nulls, and one that is not
known here is left out, or lost where the table is overwritten.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.auditing import account, forgery, sections
from cloud.runtime import jvm

_PLACE = ("topic_id", *account.PLACE)
_LABEL, _PLACES = "gateway string, epoch string, sequence bigint", "kafka_partition int, kafka_offset bigint"
_TABLES = {
    "ranges": "gateway string, epoch string, status string, first bigint, last bigint, since timestamp, state string",
    "duplicates": f"{_LABEL}, fingerprint string, topic_id string, {_PLACES}, "
    "of_gateway string, of_epoch string, of_sequence bigint, of_kafka_partition int, of_kafka_offset bigint",
    "unwritten": f"{_LABEL}, fingerprint string, topic_id string, {_PLACES}, "
    "appended timestamp, device string, content string, leaf binary, row_leaf binary",
    "leaves": f"{_LABEL}, leaf binary, topic_id string, {_PLACES}",
    "newer": f"{_LABEL}, row_leaf binary, leaf binary, topic_id string, {_PLACES}",
    "sections": "gateway string, epoch string, first bigint, last bigint, digest string, signed boolean, status string",
    "forgeries": f"status string, fingerprint string, device string, {_LABEL}, {_PLACES}, "
    "of_kafka_partition int, of_kafka_offset bigint",
    "offsets": "topic_id string, kafka_partition int, end bigint, audits bigint, since timestamp",
}


@dataclass(frozen=True, slots=True)
class TopicSpan:
    """The records of the topic that one audit reads; offsets by partition."""

    topic_id: str
    starts: dict[int, int]
    ends: dict[int, int]
    gone: int
    """Offsets that the topic had lost before an audit read them."""

    @property
    def offsets(self) -> int:
        return sum(end - self.starts[partition] for partition, end in self.ends.items())


@dataclass(frozen=True, slots=True)
class Series:
    """The place of an audit among those of one folder."""

    number: int
    since: datetime
    """When the first of them ended."""


class Store:
    """The audit's tables, in one folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = jvm.qualify(spark, folder)
        for name in _TABLES:
            # Not by CREATE TABLE, which cannot complete what an audit that was killed here has left.
            self._write(self._frame(name, []), name, "ignore")

    def ends(self, topic_id: str) -> dict[int, int]:
        """Return the offsets at which the last audit of a topic ended, by partition."""
        rows = self.read("offsets").filter(F.col("topic_id") == topic_id).collect()
        return {row["kafka_partition"]: row["end"] for row in rows}

    def series(self, ended: datetime) -> Series:
        """Return the place of an audit that ends now."""
        earlier = self.read("offsets")
        last = earlier.agg(F.max("audits").alias("audits"), F.unix_seconds(F.min("since")).alias("since")).collect()[0]
        if last["audits"] is None:
            return Series(1, ended)
        return Series(last["audits"] + 1, datetime.fromtimestamp(last["since"], UTC))

    def unwritten(self, span: TopicSpan) -> DataFrame:
        """Return the records below the span that were unwritten; the table may have their events by now."""
        found = self.read("unwritten").filter(F.col("topic_id") == span.topic_id)
        return found.filter(~F.expr(_from(span))).drop("topic_id")

    def forgeries(self, new: list[tuple[Any, ...]], rows: DataFrame) -> DataFrame:
        """Store new forgeries, and return all whose false row the table still has, as `forgery.FORGERY`."""
        if new:
            self._write(self._frame("forgeries", new), "forgeries", "append")
        there = rows.select("fingerprint", *(F.col(name).alias(f"of_{name}") for name in account.PLACE))
        found = self.read("forgeries").distinct().join(there, on=there.columns, how="left_semi")
        return found.select(*forgery.FORGERY)

    def statements(self) -> DataFrame:
        """Return the sections stated in records that an earlier audit has read, without a status."""
        found = self.read("sections").filter(F.col("digest").isNotNull())
        return found.withColumn("signed", F.coalesce("signed", F.lit(False))).select(*sections.STATED)

    def ranges(self, healed: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return the ranges that are accounted for, and the unwritten ones without the healed labels.

        Vanished ranges are returned as accepted, so that it is checked again whether the table has them.
        """
        all_ranges = self.read("ranges").drop("state")
        was = F.when(F.col("status") == account.VANISHED, account.ACCEPTED).otherwise(F.col("status"))
        all_ranges = all_ranges.withColumn("status", was)
        # Missing and pending ranges are determined again in each audit; any other status stays, also a newer release's.
        open_ = (account.MISSING, account.PENDING, account.UNWRITTEN)
        unwritten = all_ranges.filter(F.col("status") == account.UNWRITTEN)
        return all_ranges.filter(~F.col("status").isin(*open_)), account.without(unwritten, healed)

    def keep(self, ranges: DataFrame, judged: DataFrame, compared: DataFrame, span: TopicSpan, series: Series) -> None:
        """Write the results of an audit, replacing results that a crashed one has left; the offsets last.

        Files that an audit has replaced are removed a week later, Delta's default.
        """
        placed = judged.withColumn("topic_id", F.lit(span.topic_id))
        parts = {
            "duplicates": placed.filter(F.col("status") == account.DUPLICATE),
            "leaves": account.without_row(placed),
            "newer": account.newer(placed),
        }
        for name, part in parts.items():
            self._spark.sql(f"DELETE FROM {self._name(name)} WHERE {_from(span)}")
            there = self.read(name)  # a record that was unwritten before is below the span
            new = part.select(*there.columns).join(there.select(*_PLACE), on=list(_PLACE), how="left_anti")
            self._write(new, name, "append")
        unwritten = placed.filter(F.col("status") == account.UNWRITTEN)
        self._write(unwritten.select(*self.read("unwritten").columns), "unwritten", "overwrite")
        self._write(compared.select(*sections.SECTION), "sections", "overwrite")
        self._write(ranges.select(*self.read("ranges").columns), "ranges", "overwrite")
        ends = [(span.topic_id, partition, end, series.number, series.since) for partition, end in span.ends.items()]
        self._write(self._frame("offsets", ends), "offsets", "overwrite")
        for name in ("unwritten", "sections", "ranges", "offsets"):  # Delta keeps the files of an overwritten table
            self._spark.sql(f"VACUUM {self._name(name)}").collect()

    def _frame(self, name: str, rows: list[tuple[Any, ...]]) -> DataFrame:
        return self._spark.createDataFrame(rows, _TABLES[name])

    def read(self, name: str) -> DataFrame:
        there = self._spark.read.format("delta").load(f"{self._folder}/audit_{name}")
        return there.select(
            *(
                F.col(field.name) if field.name in there.columns else F.lit(None).cast(field.dataType).alias(field.name)
                for field in self._frame(name, []).schema
            )
        )

    def _write(self, frame: DataFrame, name: str, mode: str) -> None:
        adds, replaces = ("mergeSchema", mode == "append"), ("overwriteSchema", mode == "overwrite")
        writer = frame.write.format("delta").mode(mode).option(*adds).option(*replaces)
        writer.save(f"{self._folder}/audit_{name}")

    def _name(self, name: str) -> str:
        return f"delta.`{self._folder}/audit_{name}`"


def _from(span: TopicSpan) -> str:
    parts = [f"(kafka_partition = {partition} AND kafka_offset >= {start})" for partition, start in span.starts.items()]
    return f"topic_id = '{span.topic_id}' AND ({' OR '.join(parts)})"
