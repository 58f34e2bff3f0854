from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import FlushError, StopError
from cloud.runtime import disk
from cloud.stream.checkpoint import Checkpoint


def test_what_cannot_be_flushed_is_named(tmp_path: Path) -> None:
    disk.flush([str(tmp_path)])
    with pytest.raises(FlushError, match="gone: cannot be flushed to its disk: No such file"):
        disk.flush([str(tmp_path), str(tmp_path / "gone")])


@pytest.mark.spark
def test_after_a_flush_that_failed_no_start_goes_on_until_somebody_has_looked(
    spark: SparkSession, tmp_path: Path
) -> None:
    Checkpoint(spark, str(tmp_path), "events").check_flush()
    Checkpoint(spark, str(tmp_path), "events").mark_flush_failed("/data: cannot be flushed to its disk: Input error")
    with pytest.raises(StopError, match=r"/data: cannot be flushed.*remove .*oncegate-flush-failed"):
        Checkpoint(spark, str(tmp_path), "events").check_flush()
    (tmp_path / "oncegate-flush-failed").unlink()
    Checkpoint(spark, str(tmp_path), "events").check_flush()
