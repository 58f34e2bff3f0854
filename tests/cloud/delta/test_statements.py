"""The statements of docs/table.md's procedures, on Delta tables of the job, without a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.table.rows import decode
from tests.cloud.gateway import Gateway
from tests.cloud.procedures import statements
from tests.cloud.tables import COMMIT, DEVICE, counters, late, table_of

pytestmark = pytest.mark.spark
NEXT = replace(COMMIT, batch=1)


def execute(spark: SparkSession, statement: str, folder: Path) -> None:
    spark.sql(statement.replace("/srv/oncegate/", f"{folder}/").replace("urn:dev:mac:00158d0001a2b3c4", DEVICE))


def test_a_column_beside_the_jobs_is_null_in_its_rows_until_it_is_filled(spark: SparkSession, tmp_path: Path) -> None:
    gateway = Gateway()
    table_of(spark, tmp_path, gateway.records(counters(1)))
    add, fill = statements("Change the schema", "Delta")
    execute(spark, add, tmp_path)
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)  # as the job opens it at its next start
    execute(spark, fill, tmp_path)
    assert table.append(decode(late(spark, gateway.records(counters(2)))), NEXT) == 1
    assert sorted((row["id"], row["room"]) for row in table.rows().collect()) == [("1", "boiler"), ("2", None)]
    table.check_rows()  # nor is the UPDATE taken for a removal of rows


def test_what_a_second_table_lacks_is_copied_from_the_first(spark: SparkSession, tmp_path: Path) -> None:
    records = Gateway().records(counters(1, 2, 3))
    table_of(spark, tmp_path, records)
    second = DeltaTable(spark, str(tmp_path / "second"), TABLE)
    assert second.append(decode(late(spark, records[1:])), COMMIT) == 2
    [copy] = statements("Reprocess the topic", "Delta")
    for _ in range(2):  # a second time changes nothing
        execute(spark, copy, tmp_path)
    assert sorted(row["id"] for row in second.rows().collect()) == ["1", "2", "3"]
    assert DeltaTable(spark, str(tmp_path / "second"), TABLE).last_commit() == COMMIT
    assert second.append(spark.createDataFrame([], TABLE.schema), NEXT) == 0
