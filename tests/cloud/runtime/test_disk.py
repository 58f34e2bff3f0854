import logging
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import FlushError, StopError
from cloud.runtime.disk import FlushedFolders
from cloud.runtime.outcome import NEXT_STEP, exit_status, printable
from cloud.stream.checkpoint import Checkpoint
from contract.fields import VERSION
from simulators.services.spark import submit
from tests.support.disks.failing_disk import UNWRITABLE, failing_disk
from tests.support.disks.small_disk import small_disk
from tests.support.waiting import log_bytes, wait_for_end, wait_for_work


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


logger = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StopError("do this"), "stage=failed error='do this'"),
        (ValueError("[KIND] what\nJVM stacktrace"), f"stage=failed error='ValueError: [KIND] what' hint={NEXT_STEP!r}"),
    ],
)
def test_a_program_logs_its_version_and_an_error_in_a_sentence(
    error: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    def program() -> int:
        raise error

    caplog.set_level("INFO")
    assert exit_status(program, logger) == 1
    begun = f"stage=process version={version('oncegate')!r} contract={VERSION}"
    assert [record.getMessage() for record in caplog.records] == [begun, message]


@pytest.mark.guarantee(6)
def test_what_senders_have_named_acts_on_no_terminal() -> None:
    assert printable("missing: gw\x1b[2J\u202e\x9b é😀") == "missing: gw\\x1b[2J\\u202e\\x9b é😀"


STANDSTILL_SECONDS_MAX = 180.0
NOT_ASKED = 3
JOB = f"""
import sys
from cloud.session import session
from cloud.runtime.shutdown import StopRequest

stop = StopRequest()
with session() as spark:
    stop.listen(spark)
    print("stage=listening", flush=True)
    sys.exit(0 if stop.wait(600) else {NOT_ASKED})
"""


@pytest.mark.heavy
@pytest.mark.spark
def test_a_request_that_only_the_java_machine_hears_ends_a_job_that_has_no_stream_yet(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = submit(script, (), tmp_path)
    try:
        wait_for_work(
            job,
            lambda: job.log().count("stage=listening"),
            1,
            "listens",
            STANDSTILL_SECONDS_MAX,
            work=lambda: log_bytes(job),
        )
        job.request_end()
        assert wait_for_end(job, STANDSTILL_SECONDS_MAX) == 0
        assert "Exception" not in job.log()
    finally:
        job.kill()
