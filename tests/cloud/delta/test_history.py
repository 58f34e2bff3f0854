import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from cloud.delta.history import DeltaHistory
from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.table.commits import CLAIM_ONLY, to_json
from tests.cloud.tables import COMMIT, append_as_another

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Return the folder of a table with one commit of the job."""
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(spark.createDataFrame([], TABLE.schema), COMMIT)
    return tmp_path / "events"


@pytest.mark.heavy
def test_a_commit_below_another_is_not_found(spark: SparkSession, folder: Path) -> None:
    history = DeltaHistory(spark, str(folder))
    history.last()
    append_as_another(spark, folder, to_json(replace(COMMIT, batch=1)))
    append_as_another(spark, folder, to_json(replace(COMMIT, claim=2, checkpoint="younger")))
    assert history.find(replace(COMMIT, batch=1)) is None
    last = history.last()
    assert last is not None
    assert last.commit.checkpoint == "younger"


def latest_version(folder: Path) -> int:
    return max(int(file.stem) for file in (folder / "_delta_log").glob("*.json"))


def write_as_another(folder: Path, *actions: dict[str, Any]) -> None:
    """Write a version by hand, like a program that implements only Delta's protocol."""
    lines = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
    (folder / "_delta_log" / f"{latest_version(folder) + 1:020}.json").write_text(lines)


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


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("operation", TAKING_AWAY)
def test_rows_that_somebody_takes_away_stop_the_job_at_once_and_at_each_start(
    spark: SparkSession, folder: Path, operation: str
) -> None:
    table, nothing = filled(spark, folder), spark.createDataFrame([], TABLE.schema)
    table.check_rows()
    spark.sql(TAKING_AWAY[operation].format(table=f"delta.`{folder}`", before=latest_version(folder) - 1))
    with pytest.raises(StopError, match=f"a {operation} by another program"):
        table.append(nothing, replace(COMMIT, batch=3))
    for _ in range(2):
        restarted = DeltaTable(spark, str(folder), TABLE)
        with pytest.raises(StopError, match=f"a {operation} by another program.*--read-again"):
            restarted.check_rows()
    # A new checkpoint's claim supersedes it.
    restarted.append(nothing, replace(COMMIT, claim=2, batch=CLAIM_ONLY))
    restarted.check_rows()
    restarted.append(nothing, replace(COMMIT, claim=2, batch=0))
    DeltaTable(spark, str(folder), TABLE).check_rows()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_takes_no_rows_away_stops_nothing(spark: SparkSession, folder: Path) -> None:
    table, name = filled(spark, folder), f"delta.`{folder}`"
    spark.sql(f"UPDATE {name} SET site = 'house' WHERE id = '2'")
    append_as_another(spark, folder, "the owner's own comment")
    table.compact()
    found = deltalake.DeltaTable(str(folder))
    names = deltalake.QueryBuilder().register("t", found).execute("SELECT id, 'x' AS site FROM t").read_all()
    merge = found.merge(names, "old.id = new.id", source_alias="new", target_alias="old")
    merge.when_matched_update({"site": "new.site"}).execute()
    for statement in (
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        f"ALTER TABLE {name} ADD COLUMNS (extra string)",
        f"OPTIMIZE {name} ZORDER BY (received)",
        f"VACUUM {name} RETAIN 168 HOURS",
        f"CREATE TABLE delta.`{folder}-clone` SHALLOW CLONE {name}",
        f"CREATE TABLE IF NOT EXISTS {name} USING delta",
    ):
        spark.sql(statement).collect()
    table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=3))
    DeltaTable(spark, str(folder), TABLE).check_rows()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_rows_taken_away_among_other_commits_stop_the_job_and_its_next_start(spark: SparkSession, folder: Path) -> None:
    table = filled(spark, folder)
    append_as_another(spark, folder, "the owner's own comment")
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = '2'")
    append_as_another(spark, folder)
    with pytest.raises(StopError, match="a DELETE by another program"):
        table.append(spark.createDataFrame([], TABLE.schema), replace(COMMIT, batch=3))
    append_as_another(spark, folder)
    with pytest.raises(StopError, match="a DELETE by another program"):
        DeltaTable(spark, str(folder), TABLE).check_rows()


@pytest.mark.heavy
def test_commits_that_say_little_of_themselves_are_judged_by_what_they_do(spark: SparkSession, folder: Path) -> None:
    table, nothing = filled(spark, folder), spark.createDataFrame([], TABLE.schema)
    file = next(
        action["add"]
        for action in map(json.loads, (folder / "_delta_log" / f"{latest_version(folder):020}.json").open())
        if "add" in action
    )
    write_as_another(folder, {"commitInfo": {"timestamp": 1, "userMetadata": "one\u2028two\u0085three"}})
    write_as_another(folder, {"txn": {"appId": "another", "version": 1}})
    table.append(nothing, replace(COMMIT, batch=3))
    DeltaTable(spark, str(folder), TABLE).check_rows()
    gone = {
        "path": file["path"],
        "deletionTimestamp": 1,
        "dataChange": True,
        "partitionValues": file["partitionValues"],
    }
    write_as_another(folder, {"remove": gone})
    with pytest.raises(StopError, match="by another program"):
        table.append(nothing, replace(COMMIT, batch=4))
    with pytest.raises(StopError, match="by another program"):
        DeltaTable(spark, str(folder), TABLE).check_rows()
