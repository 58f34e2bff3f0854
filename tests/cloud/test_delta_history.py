from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import delta_history
from cloud.commits import to_json
from cloud.delta_history import DeltaHistory
from cloud.delta_sink import TABLE
from cloud.delta_table import DeltaTable
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
