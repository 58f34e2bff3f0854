"""Qualified paths name the folder that the unqualified one names; and what a plan shows of a frame."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import QUARANTINE
from cloud.delta.table import DeltaTable
from cloud.runtime import disk, jvm
from cloud.stream.checkpoint import Checkpoint, Claim

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["plain", "a b", "a%20b", "50%", "a#b", "a?b=c", "ä"])
def test_a_qualified_path_names_the_same_folder(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    qualified = jvm.qualify(spark, str(folder))
    assert qualified.startswith("file:/")
    assert jvm.qualify(spark, qualified) == qualified
    assert disk.local_folders(spark, [str(folder), qualified]) == (str(folder), str(folder))
    Checkpoint(spark, qualified, "events").write_claim(Claim("c", 1))
    assert [child.name for child in tmp_path.iterdir()] == [name]


@pytest.mark.guarantee(5)
def test_a_table_is_in_the_folder_that_its_qualified_path_names(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    DeltaTable(spark, jvm.qualify(spark, str(folder)), QUARANTINE)
    assert [child.name for child in tmp_path.iterdir()] == [folder.name]
    assert DeltaTable.exists(spark, str(folder))


def forged(rows: DataFrame) -> DataFrame:
    """Return another column `data`, and one whose name has the former one's name and id."""
    known: Any = rows
    output = known._jdf.queryExecution().analyzed().output()
    former = next(str(output.apply(at)) for at in range(output.size()) if output.apply(at).name() == "data")
    return rows.select("id", F.lit("x").alias("data"), F.lit(1).alias(f"a\0{former}\0b"))


def doubled_by_a_subquery(rows: DataFrame) -> DataFrame:
    """Return a row for each group that an older Spark's rules let a subquery have, which becomes a join."""
    settings = rows.sparkSession.conf
    settings.set("spark.sql.legacy.scalarSubqueryAllowGroupByNonEqualityCorrelatedPredicate", "true")
    settings.set("spark.sql.optimizer.scalarSubqueryUseSingleJoin", "false")
    rows.sparkSession.range(3).createOrReplaceTempView("others")
    query = "(SELECT count(*) FROM others WHERE others.id < at GROUP BY others.id)"
    return rows.withColumn("at", F.col("id")).withColumn("x", F.expr(query))


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("function", "only_adds"),
    [
        (lambda rows: rows, True),
        (lambda rows: rows.withColumn("x", F.col("id") + 1).withColumn("y", F.col("x")), True),
        (lambda rows: rows.select(F.lit(1).alias("x\0"), "DATA", "*").drop("x\0").select("data", "id"), True),
        (lambda rows: rows.drop("data").withColumn("data", F.lit("a")), False),
        (lambda rows: rows.select("id", F.col("id").cast("string").alias("data")), False),
        (lambda rows: rows.withColumn("x", F.explode(F.array(F.lit(1), F.lit(2)))), False),
        (lambda rows: rows.sparkSession.range(3).select("id", F.lit("a").alias("data")), False),
        (forged, False),
        (doubled_by_a_subquery, False),
    ],
)
def test_a_frame_only_adds_columns_where_projections_keep_the_given_ones(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame], only_adds: bool
) -> None:
    session = spark.newSession()
    given = session.range(3).select("id", F.lit("a").alias("data"))
    made = function(given)
    assert jvm.only_adds_columns(made, given) is only_adds
    if function is doubled_by_a_subquery:
        assert made.count() == 3
        assert len(made.collect()) > 3
