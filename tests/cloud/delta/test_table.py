"""A Delta table: its commits, its log, its maintenance."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from cloud import maintenance
from cloud.delta.sink import QUARANTINE, TABLE, open_tables
from cloud.delta.table import DeltaTable, Layout, excludes_writers
from cloud.errors import StopError
from cloud.settings import parse
from cloud.table import rows
from cloud.table.devices import Devices
from cloud.table.rows import decode
from contract.event import Event
from tests.cloud.gateway import Gateway
from tests.cloud.made_rows import row, write_table
from tests.cloud.tables import COMMIT, append_as_another, counters, late, table_of
from tests.docs.pages import ROOT

pytestmark = pytest.mark.spark


@pytest.mark.guarantee(5)
def test_of_two_jobs_on_copies_of_one_checkpoint_the_later_writer_of_a_batch_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta silently skips the second write under one version, whatever offsets it is of."""
    first, second = (DeltaTable(spark, str(tmp_path / "events"), TABLE) for _ in range(2))
    nothing = spark.createDataFrame([], TABLE.schema)
    first.append(nothing, COMMIT)
    with pytest.raises(StopError, match="copy of this job's checkpoint"):
        second.append(nothing, replace(COMMIT, ends={0: 10}))
    assert first.last_commit() == COMMIT


@pytest.mark.heavy
@pytest.mark.parametrize("option", ["skipChangeCommits", "readChangeFeed"])
def test_a_stream_as_on_the_page_reads_each_row_once_over_an_erasure_and_a_compaction(
    spark: SparkSession, tmp_path: Path, option: str
) -> None:
    folder, options = tmp_path / "events", {option: "true"}
    assert f'.option("{option}", "true")' in (ROOT / "docs" / "table.md").read_text()
    table = write_table(spark, [row(1, 0, "a", "{}"), row(2, 1, "b", "{}")], folder)

    if option == "readChangeFeed":
        job = ["--bootstrap-servers", "k:1", "--checkpoint", str(tmp_path / "c"), "--table", str(table)]
        for given, expected in (("--change-feed", 86_400), ("--change-feed=2h", 7200)):
            open_tables(spark, parse([*job, given]).tables, Devices(spark, None), 3600)
            properties = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]["properties"]
            assert properties["delta.logRetentionDuration"] == f"interval {expected} seconds"
            assert properties["delta.enableChangeDataFeed"] == "true"

    def add(number: int) -> None:
        values = [tuple(row(number, 2, "a", "{}")[name] for name in rows.COLUMNS)]
        spark.createDataFrame(values, rows.SCHEMA).write.format("delta").mode("append").save(str(table))

    def read() -> list[int]:
        read = spark.readStream.format("delta").options(**options).load(str(table))
        kind = F.col("_change_type") if option == "readChangeFeed" else F.lit("insert")
        stream = read.filter(kind == "insert").select("sequence").writeStream.format("delta")
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        stream.start(str(tmp_path / "copy")).awaitTermination()
        copied = spark.read.format("delta").load(str(tmp_path / "copy"))
        return sorted(one["sequence"] for one in copied.collect())

    assert read() == [1, 2]
    add(3)
    spark.sql(f"UPDATE delta.`{table}` SET device = 'urn:oncegate:erased' WHERE device = 'a'")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    add(4)
    assert read() == [1, 2, 3, 4]


class Opened:
    """A table with one batch, as a job has it open, and a copy of its folder."""

    def __init__(self, spark: SparkSession, parent: Path) -> None:
        self.spark = spark
        self.folder, self.copy = parent / "events", parent / "copy"
        self.table = DeltaTable(spark, str(self.folder), TABLE)
        self.append(batch=0)
        shutil.copytree(self.folder, self.copy)

    def append(self, batch: int) -> None:
        self.table.append(self.spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=batch))


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Opened:
    return Opened(spark, tmp_path)


@pytest.mark.guarantee(5)
def test_a_table_whose_folder_is_removed_while_the_job_runs_is_not_created_anew(opened: Opened) -> None:
    shutil.rmtree(opened.folder)
    for act in (opened.table.check, lambda: opened.append(batch=1)):
        with pytest.raises(StopError, match=f"no longer has version 1.*--succeeds {opened.table.id}"):
            act()
    assert not opened.folder.exists()
    shutil.copytree(opened.copy, opened.folder)  # the disk is mounted again
    opened.append(batch=1)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_an_older_copy_that_is_put_in_its_place_while_the_job_runs_is_not_continued(opened: Opened) -> None:
    opened.append(batch=1)
    shutil.rmtree(opened.folder)
    shutil.copytree(opened.copy, opened.folder)
    for act in (opened.table.check, lambda: opened.append(batch=2)):
        with pytest.raises(StopError, match=r"no longer has version 2.*an older copy.*a new checkpoint"):
            act()
    assert DeltaTable(opened.spark, str(opened.folder), TABLE).last_commit() == COMMIT


@pytest.mark.guarantee(5)
def test_another_table_that_is_put_in_its_place_while_the_job_runs_is_noticed(opened: Opened, tmp_path: Path) -> None:
    other = tmp_path / "other"
    DeltaTable(opened.spark, str(other), TABLE)
    append_as_another(opened.spark, other)
    shutil.rmtree(opened.folder)
    other.rename(opened.folder)
    for act in (opened.table.check, lambda: opened.append(batch=1)):
        with pytest.raises(StopError, match=f"another one was put in its place.*--succeeds {opened.table.id}"):
            act()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sets(
        st.sampled_from(sorted(rows.COLUMNS.keys() - {"fingerprint", "day", "received", "event_time"})),
        min_size=1,
        max_size=4,
    )
)
def test_a_job_goes_on_with_a_table_that_another_release_has_made(
    spark: SparkSession, tmp_path: Path, lacking: set[str]
) -> None:
    path = str(tmp_path / uuid4().hex)
    fields = [field for field in rows.SCHEMA.fields if field.name not in lacking]
    other = replace(TABLE, schema=StructType([*fields, StructField("later", IntegerType())]))
    DeltaTable(spark, path, other)
    table = DeltaTable(spark, path, TABLE)
    decoded = decode(late(spark, Gateway().records([Event("a", id=1, data={"a": 1}, ext={"b": 2})])))
    assert table.append(decoded, COMMIT) == 1
    assert DeltaTable(spark, path, other).append(decoded.drop(*lacking), replace(COMMIT, batch=1)) == 1
    first, second = table.rows().collect()
    assert set(first.asDict()) == rows.COLUMNS.keys() | {"later"}
    assert all(first[name] == second[name] for name in rows.COLUMNS.keys() - lacking - {"processed_at"})


def test_a_column_of_another_type_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    fields = [field for field in rows.SCHEMA.fields if field.name != "offset_ms"]
    other = replace(TABLE, schema=StructType([*fields, StructField("offset_ms", StringType())]))
    DeltaTable(spark, str(tmp_path / "events"), other)
    with pytest.raises(StopError, match="column offset_ms has the type string, and this release writes bigint"):
        DeltaTable(spark, str(tmp_path / "events"), TABLE)


def bloom_filter_bytes(spark: SparkSession, file: Path) -> list[int]:
    """Return the sizes of a Parquet file's Bloom filters over the fingerprints, one per row group; 0 for none."""
    java: Any = spark._jvm
    path = java.org.apache.hadoop.fs.Path(str(file))
    source = java.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, spark._jsc.hadoopConfiguration())
    reader = java.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    chunks = [chunk for group in reader.getFooter().getBlocks() for chunk in group.getColumns()]
    fingerprints = [chunk for chunk in chunks if chunk.getPath().toDotString() == "fingerprint"]
    filters = [reader.readBloomFilter(chunk) for chunk in fingerprints]
    reader.close()
    return [found.getBitsetSize() if found is not None else 0 for found in filters]


def test_the_files_of_a_batch_are_its_new_rows_with_a_bloom_filter_over_the_fingerprints_as_large_as_they_need(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "plant [1]{a}"  # which looks like a pattern
    table = table_of(spark, folder, Gateway().records(counters(*range(2_000))))
    new = table.new_rows()
    assert new is not None
    assert new[1].select("id").distinct().count() == 2_000
    sizes = [size for file in (folder / "events").rglob("*.parquet") for size in bloom_filter_bytes(spark, file)]
    assert sizes
    assert all(256 <= size <= 8_192 for size in sizes), (
        "about ten bits for each fingerprint, not the 1 MiB of a full group"
    )


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_maintenance_compacts_and_the_last_commit_is_found_behind_its_own(spark: SparkSession, tmp_path: Path) -> None:
    gateway = Gateway()
    table = table_of(spark, tmp_path, gateway.records(counters(1, 2)))
    table.append(decode(late(spark, gateway.records(counters(3, 4)))), replace(COMMIT, batch=1))
    removed, added = table.compact()
    assert removed > added == 1
    unreferenced = tmp_path / "events" / "of-a-killed-batch.parquet"
    unreferenced.touch()
    os.utime(unreferenced, (time.time() - 10 * 86400,) * 2)
    table.vacuum(30 * 86400)  # Delta's own retention is a week
    assert unreferenced.exists()
    table.vacuum(7 * 86400)
    assert not unreferenced.exists()
    assert DeltaTable(spark, str(tmp_path / "events"), TABLE).last_commit() == replace(COMMIT, batch=1)
    assert sorted(row["id"] for row in table.rows().collect()) == ["1", "2", "3", "4"]


@pytest.mark.guarantee(5)
def test_maintenance_is_refused_beside_a_job_where_two_processes_do_not_exclude_one_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert all(excludes_writers(spark, path) for path in (str(tmp_path), "abfs://a@b/t", "gs://b/t"))
    assert not any(excludes_writers(spark, f"{scheme}://b/t") for scheme in ("s3", "s3a", "s3n"))
    # Before any request to the file system, which this session does not have.
    with pytest.raises(StopError, match="--job-is-stopped"):
        maintenance.maintain_delta(spark, maintenance.parse(["--table", "s3a://b/t"]))


def test_a_path_without_a_scheme_is_in_the_default_file_system(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "s3a://b")
    try:
        assert not excludes_writers(spark, "/t")
        assert excludes_writers(spark, "file:/t")
    finally:
        settings.set("fs.defaultFS", before)
    assert excludes_writers(spark, "/t")


@pytest.mark.parametrize("layout", [TABLE, QUARANTINE])
def test_a_table_that_somebody_else_has_created_gets_the_properties_of_a_short_log_and_keeps_its_owners(
    spark: SparkSession, tmp_path: Path, layout: Layout
) -> None:
    folder = str(tmp_path / "events")
    spark.createDataFrame([], layout.schema).write.partitionBy(*layout.partitioned_by).format("delta").save(folder)
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
    DeltaTable(spark, folder, layout)
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").collect()[0]["properties"]
    assert properties == {**layout.properties, "delta.checkpointInterval": "7"}
    assert properties["delta.logRetentionDuration"] == "interval 1 hour"
    assert properties["delta.enableExpiredLogCleanup"] == "false"


@pytest.mark.parametrize("left", ["", ".00000000000000000000.json.6d9c1c6a-7cb8-4a38-9a3d-5fd3bf5ad7ab.tmp"])
@pytest.mark.heavy
def test_a_table_whose_creation_was_killed_before_its_first_version_is_created(
    spark: SparkSession, tmp_path: Path, left: str
) -> None:
    log = tmp_path / "events" / "_delta_log"
    log.mkdir(parents=True)
    if left:
        (log / left).write_text('{"commitInfo":')
    assert not DeltaTable.exists(spark, str(tmp_path / "events"))
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(spark.createDataFrame([], TABLE.schema), COMMIT)
    assert DeltaTable(spark, str(tmp_path / "events"), TABLE).last_commit() == COMMIT
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path / 'events'}`").collect()[0]
    assert DeltaTable.exists(spark, str(tmp_path / "events"))
    assert detail["id"] == table.id
    assert detail["partitionColumns"] == [*TABLE.partitioned_by]
    assert TABLE.properties.items() <= detail["properties"].items()
