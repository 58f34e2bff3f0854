"""Qualified paths: each names the folder that the unqualified one names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
