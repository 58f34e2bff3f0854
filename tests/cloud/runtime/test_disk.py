from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import FlushError, StopError
from cloud.runtime.disk import FlushedFolders
from cloud.stream.checkpoint import Checkpoint
from tests.support.disks.failing_disk import UNWRITABLE, failing_disk
from tests.support.disks.small_disk import small_disk


def test_what_cannot_be_flushed_is_named(tmp_path: Path) -> None:
    with FlushedFolders([str(tmp_path)]) as folders:
        folders.flush()
    with pytest.raises(FlushError, match="gone: cannot be flushed to its disk: No such file"):
        FlushedFolders([str(tmp_path), str(tmp_path / "gone")])


def test_a_write_error_is_found_though_another_process_has_seen_it(tmp_path: Path) -> None:
    with failing_disk(tmp_path) as folder, FlushedFolders([str(folder)]) as folders:
        (folder / "events").write_bytes(UNWRITABLE)
        subprocess.run(("sync", "--file-system", str(folder)), check=False, capture_output=True)
        with FlushedFolders([str(folder)]) as later:
            later.flush()  # what Linux reports to a descriptor that is opened now: nothing
        with pytest.raises(FlushError):
            folders.flush()


@pytest.mark.guarantee(5)
@pytest.mark.spark
def test_after_a_flush_that_failed_no_start_goes_on_until_somebody_has_looked(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    Checkpoint(spark, str(checkpoint), "events").check_flush()
    with failing_disk(tmp_path) as folder, FlushedFolders([str(folder)]) as folders:
        (folder / "events").write_bytes(UNWRITABLE)
        with pytest.raises(FlushError):
            Checkpoint(spark, str(checkpoint), "events").flush(folders)
    with pytest.raises(StopError, match=r"/failing: cannot be flushed.*remove .*oncegate-flush-failed"):
        Checkpoint(spark, str(checkpoint), "events").check_flush()
    (checkpoint / "oncegate-flush-failed").unlink()
    Checkpoint(spark, str(checkpoint), "events").check_flush()
    assert not (checkpoint / "oncegate-probe").exists()


@pytest.mark.guarantee(5)
@pytest.mark.spark
def test_no_start_goes_on_where_a_disk_that_has_become_read_only_has_no_record_of_a_failed_flush(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 1) as disk_folder:
        subprocess.run(("mount", "-o", "remount,ro", str(disk_folder)), check=True)
        with FlushedFolders([str(disk_folder)]) as folders:
            folders.flush()  # a read-only disk has nothing to flush
        with pytest.raises(StopError, match=r"cannot be written: .*\(Read-only file system\)"):
            Checkpoint(spark, str(disk_folder), "events").check_flush()
