from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import delta_history
from cloud.commits import CLAIM_ONLY, to_json
from cloud.delta_history import DeltaHistory
from cloud.delta_sink import TABLE
from cloud.delta_table import DeltaTable
from cloud.errors import StopError
from tests.cloud.tables import append_as_another
from tests.cloud.test_look_up import COMMIT

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Give a table that our first commit has just been written to."""
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(spark.createDataFrame([], TABLE.schema), COMMIT)
    return tmp_path / "events"


def test_later_commits_are_read_without_the_history(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = DeltaHistory(spark, str(folder))
    assert history.last() is not None
    append_as_another(spark, folder)
    append_as_another(spark, folder, "somebody's own words")
    append_as_another(spark, folder, to_json(replace(COMMIT, batch=1)))
    append_as_another(spark, folder, to_json(COMMIT, is_kept=True))
    monkeypatch.setattr(DeltaHistory, "last", None)
    found = history.find(replace(COMMIT, batch=1))
    assert found is not None
    assert (found.commit, found.rows) == (replace(COMMIT, batch=1), 0)


def test_files_and_history_tell_the_same(spark: SparkSession, folder: Path) -> None:
    followed = DeltaHistory(spark, str(folder))
    followed.last()
    rows = spark.range(7).selectExpr("cast(id AS string) AS id", "date'2026-01-01' AS day")
    commit = replace(COMMIT, batch=1, ends={0: 16})
    rows.write.format("delta").mode("append").option("userMetadata", to_json(commit)).save(str(folder))
    by_file, by_history = followed.find(commit), DeltaHistory(spark, str(folder)).last()
    assert by_file is not None
    assert by_history is not None
    assert (by_file.commit, by_file.rows) == (by_history.commit, by_history.rows) == (commit, 7)
    assert by_file.moment == pytest.approx(by_history.moment, abs=10)


def test_a_commit_below_another_is_not_found(spark: SparkSession, folder: Path) -> None:
    history = DeltaHistory(spark, str(folder))
    history.last()
    append_as_another(spark, folder, to_json(replace(COMMIT, batch=1)))
    append_as_another(spark, folder, to_json(replace(COMMIT, claim=2, checkpoint="younger")))
    assert history.find(replace(COMMIT, batch=1)) is None
    last = history.last()
    assert last is not None
    assert last.commit.checkpoint == "younger"


def test_a_commit_behind_very_many_others_is_found(spark: SparkSession, folder: Path) -> None:
    history = DeltaHistory(spark, str(folder))
    history.last()
    log = folder / "_delta_log"
    first = max(int(file.stem) for file in log.glob("*.json")) + 1
    others = delta_history._FOLLOWED_MAX + 5
    for version in range(first, first + others):
        info = {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {}}
        (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": info}, separators=(",", ":")) + "\n")
    append_as_another(spark, folder, to_json(replace(COMMIT, batch=1)))
    assert history.find(replace(COMMIT, batch=1)) is not None


TAKING_AWAY = {
    "RESTORE": "RESTORE TABLE {table} TO VERSION AS OF {before}",
    "DELETE": "DELETE FROM {table} WHERE id = '2'",
    "WRITE": "INSERT OVERWRITE {table} SELECT * FROM {table} WHERE id = '1'",
    "CREATE OR REPLACE TABLE AS SELECT": "CREATE OR REPLACE TABLE {table} USING delta AS SELECT * FROM {table} LIMIT 1",
}


def filled(spark: SparkSession, folder: Path) -> DeltaTable:
    """Return a table with two batches of two rows each, as the job leaves it."""
    table = DeltaTable(spark, str(folder), TABLE)
    for batch in (1, 2):
        numbers = spark.range(2 * batch - 1, 2 * batch + 1)
        rows = numbers.selectExpr("cast(id AS string) AS id", "date'2026-01-01' AS day")
        table.append(rows, replace(COMMIT, batch=batch))
    return table


@pytest.mark.parametrize("operation", TAKING_AWAY)
def test_rows_that_somebody_takes_away_stop_the_job_at_each_start(
    spark: SparkSession, folder: Path, operation: str
) -> None:
    filled(spark, folder).check_rows()
    before = max(int(file.stem) for file in (folder / "_delta_log").glob("*.json")) - 1
    spark.sql(TAKING_AWAY[operation].format(table=f"delta.`{folder}`", before=before))
    for _ in range(2):
        with pytest.raises(StopError, match=f"a {operation} by somebody else.*--read-again"):
            DeltaTable(spark, str(folder), TABLE).check_rows()


def test_rows_taken_away_while_the_job_runs_stop_it_and_its_next_start(spark: SparkSession, folder: Path) -> None:
    table, nothing = filled(spark, folder), spark.createDataFrame([], TABLE.schema)
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = '2'")
    with pytest.raises(StopError, match="a DELETE by somebody else"):
        table.append(nothing, replace(COMMIT, batch=3))
    restarted = DeltaTable(spark, str(folder), TABLE)
    with pytest.raises(StopError, match="a DELETE by somebody else"):
        restarted.check_rows()
    # A new checkpoint's claim goes over it.
    restarted.append(nothing, replace(COMMIT, claim=2, batch=CLAIM_ONLY))
    restarted.check_rows()
    restarted.append(nothing, replace(COMMIT, claim=2, batch=0))
    DeltaTable(spark, str(folder), TABLE).check_rows()


def test_what_takes_no_rows_away_stops_nothing(spark: SparkSession, folder: Path) -> None:
    table = filled(spark, folder)
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
    spark.sql(f"UPDATE delta.`{folder}` SET site = 'house' WHERE id = '2'")
    append_as_another(spark, folder, "somebody's own words")
    assert table.keep_last_commit(after_seconds=0)
    table.compact()
    table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=3))
    DeltaTable(spark, str(folder), TABLE).check_rows()
