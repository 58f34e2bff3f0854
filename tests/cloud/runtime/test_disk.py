from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import FlushError, StopError
from cloud.runtime import disk
from cloud.stream.checkpoint import Checkpoint
from tests.support.small_disk import small_disk


def test_what_cannot_be_flushed_is_named(tmp_path: Path) -> None:
    disk.flush([str(tmp_path)])
    with pytest.raises(FlushError, match="gone: cannot be flushed to its disk: No such file"):
        disk.flush([str(tmp_path), str(tmp_path / "gone")])


@pytest.mark.spark
def test_after_a_flush_that_failed_no_start_goes_on_until_somebody_has_looked(
    spark: SparkSession, tmp_path: Path
) -> None:
    Checkpoint(spark, str(tmp_path), "events").check_flush()
    with pytest.raises(FlushError):
        Checkpoint(spark, str(tmp_path), "events").flush(["/gone"])
    with pytest.raises(StopError, match=r"/gone: cannot be flushed.*remove .*oncegate-flush-failed"):
        Checkpoint(spark, str(tmp_path), "events").check_flush()
    (tmp_path / "oncegate-flush-failed").unlink()
    Checkpoint(spark, str(tmp_path), "events").check_flush()
    assert not (tmp_path / "oncegate-probe").exists()


@pytest.mark.spark
def test_no_start_goes_on_where_a_disk_that_has_become_read_only_has_no_record_of_a_failed_flush(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 1) as disk_folder:
        subprocess.run(("mount", "-o", "remount,ro", str(disk_folder)), check=True)
        with pytest.raises(FlushError):
            Checkpoint(spark, str(disk_folder), "events").flush(["/gone"])
        disk.flush([str(disk_folder)])  # a read-only disk has nothing to flush
        with pytest.raises(StopError, match=r"cannot be written: .*\(Read-only file system\)"):
            Checkpoint(spark, str(disk_folder), "events").check_flush()
