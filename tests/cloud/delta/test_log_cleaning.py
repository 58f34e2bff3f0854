"""The log of a Delta table: which entries are removed, when, and by whom."""

import logging
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.delta import log_cleaning
from cloud.delta.log_cleaning import clean_log
from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.runtime import disk
from tests.cloud.tables import COMMIT, age_log, append_as_another, versions
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

TWO_HOURS = 2 * 3600
"""More than the log's retention."""
TWO_DAYS = 2 * 86_400
"""More than an hour and a change of date, after which Delta itself removes entries by default."""


def make_checkpoints(spark: SparkSession, folder: Path, interval: int) -> None:
    """Have Delta write a checkpoint into the table's log, and clean the log, with every so many commits."""
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '{interval}')")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Return the folder of a table with versions 0 to 9, checkpoints at 4 and 8, and the job's last commit at 9."""
    folder = tmp_path / "events"
    table = DeltaTable(spark, str(folder), TABLE)
    make_checkpoints(spark, folder, 4)
    for batch in range(8):
        table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=batch))
    assert versions(folder) == list(range(10))
    return folder


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_the_log_forgets_all_but_the_last_hour_and_never_the_last_commit(spark: SparkSession, folder: Path) -> None:
    for file in (folder / "_delta_log").iterdir():
        if file.name[0].isdigit():
            moment = file.stat().st_mtime - (9 - int(file.name[:20])) * 14 * 60
            os.utime(file, (moment, moment))
    table = DeltaTable(spark, str(folder), TABLE)  # which the job has open
    clean_log(spark, str(folder))
    kept = versions(folder)
    assert 0 < kept[0] <= 5  # version 5 is 56 minutes old; Delta removes what is before an expired checkpoint
    assert kept == list(range(kept[0], 10))
    assert DeltaTable(spark, str(folder), TABLE).last_commit() == replace(COMMIT, batch=7)
    assert table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=8)) == 0


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_whatever_others_write_while_the_job_is_away_its_last_commit_stays(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    DeltaTable(spark, str(folder), TABLE).append(spark.createDataFrame([], TABLE.schema), COMMIT)
    make_checkpoints(spark, folder, 2)
    age_log(folder, TWO_DAYS)
    for _ in range(2):
        append_as_another(spark, folder)
    assert DeltaTable(spark, str(folder), TABLE).last_commit() == COMMIT


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_rows_taken_away_long_before_a_commit_that_makes_a_checkpoint_stop_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    table = DeltaTable(spark, str(folder), TABLE)
    make_checkpoints(spark, folder, 4)
    table.append(spark.range(3).selectExpr("cast(id AS string) AS id", "date'2026-01-01' AS day"), COMMIT)
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = '1'")
    age_log(folder, TWO_DAYS)
    with pytest.raises(StopError, match="a DELETE by another program"):
        table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=1))
    assert (folder / "_delta_log" / f"{4:020}.checkpoint.parquet").exists()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_entries_from_a_clock_that_was_ahead_do_not_keep_later_ones(spark: SparkSession, folder: Path) -> None:
    next_year = time.time() + 365 * 86_400
    os.utime(folder / "_delta_log" / f"{3:020}.json", (next_year, next_year))
    age_log(folder, TWO_HOURS)
    clean_log(spark, str(folder))
    assert versions(folder) == [8, 9]
    assert DeltaTable(spark, str(folder), TABLE).last_commit() == replace(COMMIT, batch=7)


@pytest.mark.guarantee(5)
def test_no_batch_waits_for_a_cleaning_and_none_begins_while_one_is_under_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    begun, may_end = threading.Semaphore(0), threading.Event()

    def take_long(_: SparkSession, path: str) -> None:
        assert path == str(tmp_path / "events")
        begun.release()
        may_end.wait()

    monkeypatch.setattr(log_cleaning, "clean_log", take_long)
    monkeypatch.setattr(log_cleaning, "INTERVAL_SECONDS", 0.0)
    nothing = spark.createDataFrame([], TABLE.schema)
    for batch in range(2):
        table.append(nothing, replace(COMMIT, batch=batch))
    assert begun.acquire(timeout=60)
    assert not begun.acquire(blocking=False)
    may_end.set()


@pytest.mark.guarantee(5)
def test_what_a_checkpoint_replaces_is_removed_once_the_checkpoint_is_on_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(disk, "_flush", lambda _, folder: steps.append(folder))
    monkeypatch.setattr(log_cleaning, "clean_log", lambda *_: steps.append("clean"))
    monkeypatch.setattr(log_cleaning, "INTERVAL_SECONDS", 0.0)
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(spark.createDataFrame([], TABLE.schema), COMMIT)
    wait_until(lambda: steps == [str(tmp_path / "events"), "clean"], "the log is flushed, then cleaned")


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_log_that_cannot_be_cleaned_is_reported_and_ends_nothing(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    undeletable = folder / "_delta_log" / f"{1:020}.checkpoint.parquet"
    (undeletable / "a").mkdir(parents=True)
    shutil.copystat(undeletable.with_name(f"{1:020}.json"), undeletable)
    age_log(folder, TWO_HOURS)
    with caplog.at_level(logging.WARNING):
        clean_log(spark, str(folder))
    assert "stage=clean-log" in caplog.text
