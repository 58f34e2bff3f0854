"""The tables of an audit's results."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.audit import check_output
from cloud.auditing.settings import parse
from cloud.auditing.store import Series, Store, TopicSpan
from cloud.errors import StopError

pytestmark = pytest.mark.spark

RANGES = "gateway string, epoch string, status string, first bigint, last bigint, since timestamp, state string"
SECTIONS = "gateway string, epoch string, first bigint, last bigint, digest string, status string"
JUDGED = (
    "gateway string, epoch string, sequence bigint, fingerprint string, kafka_partition int, kafka_offset bigint, "
    "of_gateway string, of_epoch string, of_sequence bigint, of_kafka_partition int, of_kafka_offset bigint, "
    "status string, leaf binary, row_leaf binary, appended timestamp, device string, content string"
)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
REPLACED = ("unwritten", "ranges", "sections", "offsets")


@pytest.mark.parametrize(
    ("output", "refused"), [("t", True), ("t/audit", True), ("t_quarantine/a", True), ("ta", False)]
)
def test_an_output_within_a_table_is_refused(spark: SparkSession, tmp_path: Path, output: str, refused: bool) -> None:
    folders = ("--table", f"{tmp_path}/t/", "--output", f"file://{tmp_path}/{output}")
    settings = parse(["--bootstrap-servers", "localhost:9", *folders])
    with pytest.raises(StopError, match="within") if refused else nullcontext():
        check_output(spark, settings)


def test_files_that_later_audits_have_replaced_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    for name in REPLACED:  # instead of a week
        spark.sql(
            f"ALTER TABLE delta.`{tmp_path}/audit_{name}` "
            "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        )
    judged = spark.createDataFrame([], JUDGED)
    for end in (1, 2):
        ranges = spark.createDataFrame([("gw-1", "e", "accepted", 1, end, None, "open")], RANGES).coalesce(1)
        sections = spark.createDataFrame([("gw-1", "e", 1, end, "d", "verified")], SECTIONS).coalesce(1)
        series = store.series(NOON + timedelta(hours=end))
        assert series == Series(end, NOON + timedelta(hours=1))
        store.keep(ranges, judged, sections, TopicSpan("t", {0: end - 1}, {0: end}, 0), series)
    for name in REPLACED:
        live = spark.read.format("delta").load(f"{tmp_path}/audit_{name}")
        there = {file.name for file in (tmp_path / f"audit_{name}").glob("*.parquet")}
        assert there == {file.rpartition("/")[2] for file in live.inputFiles()}
    assert store.ends("t") == {0: 2}


def test_tables_whose_creation_was_killed_are_created(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("ranges", "leaves"):
        (tmp_path / f"audit_{name}" / "_delta_log").mkdir(parents=True)
    store = Store(spark, str(tmp_path))
    assert store.ends("t") == {}
    assert store.leaves().collect() == []
    ranges, unwritten = store.ranges(spark.createDataFrame([], "gateway string, epoch string, sequence bigint"))
    assert ranges.collect() == unwritten.collect() == []
