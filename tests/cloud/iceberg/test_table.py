"""An Iceberg table beside other jobs, maintenance, and other people's statements."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from cloud.errors import SinkError, StopError
from cloud.iceberg import catalog, table
from cloud.iceberg.table import IcebergTable, create, open_tables
from cloud.runtime import disk
from cloud.sinks import ICEBERG, Tables
from cloud.table import quarantine, rows
from cloud.table.commits import CLAIM_ONLY, Commit
from cloud.table.devices import Devices
from tests.cloud.tables import COMMIT
from tests.support.iceberg import HADOOP, Iceberg

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.spark,
    pytest.mark.guarantee(5),
]
BATCH = 10


@pytest.fixture
def name(spark: SparkSession, iceberg: Iceberg) -> str:
    """Return the name of an empty table, which the job has claimed."""
    made = f"oncegate.db.t{uuid4().hex}"
    create(spark, made, rows.SCHEMA, rows.PARTITIONED_BY)
    opened(spark, made).claim(replace(COMMIT, batch=CLAIM_ONLY))
    return made


def opened(spark: SparkSession, name: str) -> IcebergTable:
    return IcebergTable(spark, name, keeps_rows=True)


def batch(spark: SparkSession, number: int) -> DataFrame:
    numbers = spark.range(number * BATCH, (number + 1) * BATCH, 1, 2)
    known = {
        "fingerprint": F.unhex(F.md5(F.col("id").cast("string"))),
        "device": F.lit("urn:dev:a"),
        "sequence": F.col("id"),
        "received": F.timestamp_millis(F.col("id")),
        "day": F.lit("2026-11-27"),
    }
    columns = (known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in rows.COLUMNS.items())
    return numbers.select(*columns)


def commit(number: int, claim: int = 1) -> Commit:
    return replace(COMMIT, claim=claim, checkpoint=f"c{claim}", batch=number)


def rows_of(iceberg: Iceberg, name: str) -> list[dict[str, Any]]:
    return iceberg.rows(name.removeprefix("oncegate."))


def sequences(frame: DataFrame) -> list[int]:
    return sorted(row["sequence"] for row in frame.collect())


def test_rows_and_offsets_are_one_snapshot_which_others_read(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    job = opened(spark, name)
    before = job.rows()
    for number in range(3):
        assert job.append(batch(spark, number), commit(number)) == BATCH
    assert opened(spark, name).last_commit() == commit(2)
    assert sorted(row["sequence"] for row in rows_of(iceberg, name)) == list(range(3 * BATCH))
    assert sequences(before) == []
    assert (found := job.new_rows()) is not None
    assert (found[0], sequences(found[1])) == (commit(2), list(range(2 * BATCH, 3 * BATCH)))
    job.claim(commit(CLAIM_ONLY, 2))
    assert (found := opened(spark, name).new_rows()) is not None
    assert found[0] == commit(2)


def before_publishing(job: IcebergTable, does: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something once, after the files of a batch are written, and before the table has them."""
    publish = job._publish

    def after(*given: Any) -> Any:
        monkeypatch.undo()
        does()
        return publish(*given)

    monkeypatch.setattr(job, "_publish", after)


def test_of_two_jobs_the_older_writes_nothing_more(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, younger = opened(spark, name), opened(spark, name)
    older.append(batch(spark, 0), commit(0))
    before_publishing(older, lambda: younger.claim(commit(CLAIM_ONLY, 2)), monkeypatch)
    with pytest.raises(StopError, match="another job has claimed it"):
        older.append(batch(spark, 1), commit(1))
    younger.append(batch(spark, 1), commit(0, 2))
    with pytest.raises(StopError, match="another job has claimed it"):
        older.append(batch(spark, 1), commit(1))
    with pytest.raises(StopError, match="copy of this job's checkpoint c2"):
        opened(spark, name).append(batch(spark, 2), commit(0, 2))
    assert sorted(row["sequence"] for row in rows_of(iceberg, name)) == list(range(2 * BATCH))


def test_a_compaction_in_the_middle_of_a_batch_costs_nothing(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, maintenance = opened(spark, name), opened(spark, name)
    for number in range(2):
        job.append(batch(spark, number), commit(number))
    compacted: list[tuple[int, int]] = []
    before_publishing(job, lambda: compacted.append(maintenance.compact()), monkeypatch)
    assert job.append(batch(spark, 2), commit(2)) == BATCH
    assert compacted[0][0] > compacted[0][1]
    assert sorted(row["sequence"] for row in rows_of(iceberg, name)) == list(range(3 * BATCH))
    assert (found := opened(spark, name).new_rows()) is not None
    assert sequences(found[1]) == list(range(2 * BATCH, 3 * BATCH))


def test_a_commit_whose_answer_is_lost_is_made_once(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = opened(spark, name)
    publish = job._publish

    def commit_without_answer(changes: Any) -> None:
        changes.commit()
        raise PySparkException("the answer is lost")

    monkeypatch.setattr(
        job, "_publish", lambda loaded, *given: publish(_Watched(loaded, commit_without_answer), *given)
    )
    assert job.append(batch(spark, 0), commit(0)) == BATCH
    assert opened(spark, name).last_commit() == commit(0)
    assert len(rows_of(iceberg, name)) == BATCH


class _Watched:
    """Something of Java's, and what it returns to be gone on with, around whose `commit` something happens."""

    def __init__(self, real: Any, commit: Callable[[Any], None]) -> None:
        self._real, self._commit = real, commit

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._real, name)
        if name == "commit":
            return lambda: self._commit(self._real)
        if name == "manageSnapshots" or name.startswith(("fast", "create", "replace", "remove", "set")):
            return lambda *given: _Watched(attribute(*given), self._commit)
        return attribute


def test_what_a_killed_job_has_written_besides_the_table_is_never_in_it(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = opened(spark, name)
    monkeypatch.setattr(killed, "_publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        killed.append(batch(spark, 0), commit(0))
    assert opened(spark, name).append(batch(spark, 0), commit(0)) == BATCH
    refs = spark.sql(f"SELECT name FROM {name}.refs").collect()
    assert sum(row["name"].startswith("oncegate_job_") for row in refs) == 1
    assert len(rows_of(iceberg, name)) == BATCH


REMOVES = (
    "DELETE FROM {t} WHERE sequence = 1",
    "DELETE FROM {t} WHERE day = '2026-11-27'",
    "TRUNCATE TABLE {t}",
    "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE sequence > 5",
    "MERGE INTO {t} t USING (SELECT 1L AS sequence) s ON t.sequence = s.sequence WHEN MATCHED THEN DELETE",
    "CREATE OR REPLACE TABLE {t} AS SELECT * FROM {t} WHERE sequence > 5",
)
KEEPS = (
    "DELETE FROM {t} WHERE day = '2027-11-27'",
    "UPDATE {t} SET device = 'urn:dev:b' WHERE sequence = 1",
    "INSERT INTO {t} SELECT * FROM {t} WHERE sequence = 1",
    "ALTER TABLE {t} ADD COLUMNS (mine string)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')",
)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("statement", [*REMOVES, *KEEPS])
def test_what_removes_rows_stops_the_job_until_a_new_checkpoint(
    spark: SparkSession, name: str, statement: str, mode: str
) -> None:
    job = opened(spark, name)
    job.append(batch(spark, 0), commit(0))
    job.append(batch(spark, 1), commit(1))
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = '{mode}', 'write.update.mode' = '{mode}')")
    spark.sql(statement.format(t=name))
    if statement in KEEPS:
        job.check()
        assert job.append(batch(spark, 2), commit(2)) == BATCH
        return
    for attempt in (job.check, opened(spark, name).check, lambda: job.append(batch(spark, 2), commit(2))):
        with pytest.raises(StopError, match=r"has removed rows that were receipted|has the id"):
            attempt()
    younger = opened(spark, name)
    younger.claim(commit(CLAIM_ONLY, 2))
    younger.check()
    younger.append(batch(spark, 2), commit(0, 2))


def test_a_rollback_is_a_removal(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    job = opened(spark, name)
    job.append(batch(spark, 0), commit(0))
    loaded = catalog.load(spark, name)
    earlier = loaded.currentSnapshot().snapshotId()
    job.append(batch(spark, 1), commit(1))
    loaded.refresh()
    loaded.manageSnapshots().rollbackTo(earlier).commit()
    with pytest.raises(StopError, match="a rollback"):
        job.check()
    batch(spark, 7).writeTo(name).append()
    with pytest.raises(StopError, match="a rollback"):
        job.check()


def test_the_last_commit_never_expires(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_EXPIRY_SECONDS", 0.0)
    monkeypatch.setattr(table, "_SNAPSHOT_MS", 0)
    job = opened(spark, name)
    for number in range(4):
        job.append(batch(spark, number), commit(number))
    job.compact()
    loaded = catalog.load(spark, name)
    loaded.expireSnapshots().expireOlderThan(1 << 50).retainLast(1).commit()
    job.vacuum(7 * 86_400)
    job.check()
    again = opened(spark, name)
    assert again.last_commit() == commit(3)
    assert (found := again.new_rows()) is not None
    assert sequences(found[1]) == list(range(3 * BATCH, 4 * BATCH))
    assert spark.sql(f"SELECT * FROM {name}.snapshots").count() < 5
    again.append(batch(spark, 4), commit(4))
    assert len(rows_of(iceberg, name)) == 5 * BATCH


def test_a_table_whose_tag_was_dropped_is_still_that_of_the_youngest_job(spark: SparkSession, name: str) -> None:
    older, younger = opened(spark, name), opened(spark, name)
    older.append(batch(spark, 0), commit(0))
    younger.claim(commit(CLAIM_ONLY, 2))
    catalog.load(spark, name).manageSnapshots().removeTag("oncegate_last").commit()
    with pytest.raises(StopError, match="another job has claimed it"):
        older.append(batch(spark, 1), commit(1))
    younger.append(batch(spark, 1), commit(0, 2))
    assert opened(spark, name).last_commit() == commit(0, 2)


def test_metadata_that_a_power_cut_has_torn_are_removed_by_hand_and_the_batch_comes_again(
    spark: SparkSession, iceberg: Iceberg, name: str
) -> None:
    if iceberg.kind != HADOOP:
        pytest.skip("only such a catalog finds its newest metadata by name")
    job = opened(spark, name)
    job.append(batch(spark, 0), commit(0))
    job.append(batch(spark, 1), commit(1))
    file = iceberg.metadata(name.removeprefix("oncegate."))
    assert file is not None
    file.write_bytes(b"")
    with pytest.raises(SinkError, match="cannot be loaded"):
        opened(spark, name)
    file.unlink()
    file.with_name("version-hint.text").unlink()
    again = opened(spark, name)
    assert again.last_commit() == commit(0)
    again.append(batch(spark, 1), commit(1))
    assert len(rows_of(iceberg, name)) == 2 * BATCH


def test_another_table_in_its_place_is_not_continued(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    job = opened(spark, name)
    job.append(batch(spark, 0), commit(0))
    spark.sql(f"DROP TABLE {name}")
    with pytest.raises(StopError, match="cannot be loaded"):
        job.check()
    create(spark, name, rows.SCHEMA, rows.PARTITIONED_BY)
    with pytest.raises(StopError, match="another one was put in its place"):
        job.append(batch(spark, 1), commit(1))
    assert rows_of(iceberg, name) == []


def test_a_job_whose_branch_is_removed_while_it_writes_does_not_write_behind_a_younger_claim(
    spark: SparkSession, iceberg: Iceberg, name: str, tmp_path: Path
) -> None:
    older, younger = opened(spark, name), opened(spark, name)
    older.append(batch(spark, 0), commit(0))
    started, may_go_on = tmp_path / "started", tmp_path / "go"

    def wait(number):  # type: ignore[no-untyped-def]  # with hints Spark asks for pandas
        started.touch()
        while not may_go_on.exists():
            time.sleep(0.05)
        return number

    slow = batch(spark, 1).coalesce(1).withColumn("sequence", F.udf(wait, LongType())("sequence"))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(older.append, slow, commit(1))
        while not started.exists() and not writing.done():
            time.sleep(0.05)
        younger.claim(commit(CLAIM_ONLY, 2))
        may_go_on.touch()
        with pytest.raises(StopError, match="another job has claimed it"):
            writing.result()
    assert sorted(row["sequence"] for row in rows_of(iceberg, name)) == list(range(BATCH))
    assert opened(spark, name).last_commit() == commit(CLAIM_ONLY, 2)


@pytest.mark.parametrize("statement", ["CREATE TABLE", "CREATE OR REPLACE TABLE"])
def test_a_table_without_a_snapshot_that_somebody_has_made_is_written(
    spark: SparkSession, iceberg: Iceberg, name: str, statement: str
) -> None:
    made = name if "REPLACE" in statement else f"{name}_other"
    columns = ", ".join(f"{column} {kind.simpleString()}" for column, kind in rows.COLUMNS.items())
    spark.sql(f"{statement} {made} ({columns}) USING iceberg")
    job = opened(spark, made)
    job.claim(commit(CLAIM_ONLY, 2))
    assert job.append(batch(spark, 0), commit(0, 2)) == BATCH
    assert len(rows_of(iceberg, made)) == BATCH


def test_the_last_commit_outlives_the_age_that_the_table_sets_for_tags(
    spark: SparkSession, iceberg: Iceberg, name: str
) -> None:
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    opened(spark, name).append(batch(spark, 0), commit(0))
    catalog.load(spark, name).expireSnapshots().expireOlderThan(1 << 50).commit()
    again = opened(spark, name)
    assert again.last_commit() == commit(0)
    assert again.new_rows() is not None


def test_updates_of_a_table_with_deletion_vectors_remove_nothing(
    spark: SparkSession, iceberg: Iceberg, name: str
) -> None:
    properties = "'format-version' = '3', 'write.update.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
    job = opened(spark, name)
    job.append(batch(spark, 0).coalesce(1), commit(0))
    for number in range(3):
        spark.sql(f"UPDATE {name} SET device = 'urn:dev:b' WHERE sequence = {number}")
    job.check()
    spark.sql(f"DELETE FROM {name} WHERE sequence = 5")
    with pytest.raises(StopError, match="has removed rows"):
        job.check()


def test_a_quarantine_that_lacks_a_column_gets_it(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    unfit = f"{name}_quarantine"
    create(spark, unfit, StructType(quarantine.SCHEMA.fields[:-1]))
    table, other = (made.removeprefix("oncegate.") for made in (name, unfit))
    open_tables(spark, Tables(ICEBERG, table, other, iceberg.write_catalog()), Devices(spark, None), 86_400)
    assert spark.table(unfit).columns == quarantine.SCHEMA.names


def test_a_look_up_sees_columns_that_no_commit_has_yet(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    job = opened(spark, name)
    job.append(batch(spark, 0), commit(0))
    job.widen(StructType([StructField("rssi", LongType())]))
    assert {row["rssi"] for row in job.rows().collect()} == {None}


def test_small_integers_within_other_types_are_written(spark: SparkSession, iceberg: Iceberg, name: str) -> None:
    job, wide = opened(spark, name), batch(spark, 0).withColumn("codes", F.array(F.lit(7).cast("smallint")))
    wide = wide.withColumn("pair", F.struct(F.lit(7).cast("tinyint").alias("smallint")))
    for _ in range(2):
        job.widen(wide.schema)
    assert not job.lacks(wide.schema)
    assert job.append(wide, commit(0)) == BATCH
    assert {tuple(row["codes"]) for row in rows_of(iceberg, name)} == {(7,)}


def test_a_catalog_that_does_not_answer_is_asked_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", "silent")
    monkeypatch.setattr(catalog, "_PREFIX", "spark.sql.catalog.silent")
    file = tmp_path / "catalog"
    file.write_text("type=rest\nuri=http://127.0.0.1:9\n")
    file.chmod(0o600)
    with pytest.raises(SinkError, match=rf"catalog of {file}: org\.apache\.iceberg") as raised:
        catalog.connect(spark, Tables(ICEBERG, "db.events", "db.unfit", file))
    assert "\n" not in str(raised.value)


def test_a_table_that_is_there_needs_no_right_to_create_namespaces(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "sql", pytest.fail)
    create(spark, name, rows.SCHEMA)


@pytest.mark.parametrize("change", ["SET TBLPROPERTIES ('write.format.default'='orc')", "RENAME COLUMN mine TO yours"])
def test_new_rows_have_what_the_table_has(spark: SparkSession, iceberg: Iceberg, name: str, change: str) -> None:
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (mine string)")
    job = opened(spark, name)
    if "orc" in change:
        spark.sql(f"ALTER TABLE {name} {change}")
    job.append(batch(spark, 0).withColumn("mine", F.lit("x")), commit(0))
    if "orc" not in change:
        spark.sql(f"ALTER TABLE {name} {change}")
    assert (found := job.new_rows()) is not None
    assert {row[-1] for row in found[1].collect()} == {"x"}
    assert sequences(found[1]) == list(range(BATCH))


def test_folders_of_a_scheme_that_spark_cannot_read_are_not_local(spark: SparkSession) -> None:
    assert disk.local_folders(spark, ["s3://bucket/plant/events"]) == ()


def test_a_commit_of_another_program_beside_that_of_the_branch_costs_nothing(
    spark: SparkSession, iceberg: Iceberg, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = opened(spark, name)
    aim, statements = job._aim, [f"ALTER TABLE {name} SET TBLPROPERTIES ('mine' = '1')"]

    def commit_behind_another(changes: Any) -> None:
        while statements:
            spark.sql(statements.pop())
        changes.commit()

    monkeypatch.setattr(job, "_aim", lambda loaded: aim(_Watched(loaded, commit_behind_another)))
    assert job.append(batch(spark, 0), commit(0)) == BATCH
    assert len(rows_of(iceberg, name)) == BATCH


@pytest.mark.parametrize("torn", ["data/*/*.parquet", "metadata/snap-*.avro", "metadata/*-m0.avro"])
def test_a_last_commit_that_a_power_cut_has_torn_is_not_receipted(
    spark: SparkSession, iceberg: Iceberg, name: str, torn: str
) -> None:
    if iceberg.s3 is not None:
        pytest.skip("only a local disk is read back")
    job, plain = opened(spark, name), name.removeprefix("oncegate.")
    job.append(batch(spark, 0), commit(0))
    metadata = iceberg.metadata(plain)
    assert metadata is not None
    before = {*metadata.parents[1].glob(torn)}
    job.append(batch(spark, 1), commit(1))
    opened(spark, name).check_files()
    for file in {*metadata.parents[1].glob(torn)} - before:
        file.write_bytes(b"")
    again = opened(spark, name)
    with pytest.raises(StopError, match="its last commit is not whole"):
        again.check_files()
    if iceberg.kind != HADOOP:  # it would have to be told of the metadata before
        return
    while again.last_commit() != commit(0):
        newest = iceberg.metadata(plain)
        assert newest is not None
        newest.unlink()
        newest.with_name("version-hint.text").unlink(missing_ok=True)
    again.check_files()
    again.append(batch(spark, 1), commit(1))
    assert len(rows_of(iceberg, name)) == 2 * BATCH
