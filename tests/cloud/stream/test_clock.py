import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.stream.checkpoint import Checkpoint, Claim
from cloud.stream.clock import REMIND_SECONDS, wait_for_clock
from tests.cloud.tables import plan

pytestmark = pytest.mark.spark

TOPIC = "events"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkpoint whose batches 0 and 1 are done; the next batch's watermark is at 7 seconds."""
    for batch, watermark in ((0, 0), (1, 4_000)):
        plan(tmp_path, batch, batch + 1, 10_000 + batch, watermark)
        done = {"nextBatchWatermarkMs": watermark + 3_000 + batch * 1_000}
        (tmp_path / "commits").mkdir(exist_ok=True)
        (tmp_path / "commits" / str(batch)).write_text(f"v1\n{json.dumps(done)}")
    return tmp_path


def read_all(checkpoint: Checkpoint) -> None:
    checkpoint.read_claim()
    checkpoint.watermark()
    checkpoint.planned(1)


def nothing() -> None:
    """Repeat no receipts."""


class Clock:
    """A clock that advances by a second with each pause."""

    def __init__(self, now: float) -> None:
        self.now = now

    def pause(self, _seconds: float) -> bool:
        self.now += 1
        return False

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.mark.guarantee(5)
def test_while_a_clock_is_waited_for_receipts_are_repeated_and_so_is_the_warning(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, repeated = Clock(8.0 - 3 * REMIND_SECONDS), 0

    def repeat() -> None:
        nonlocal repeated
        repeated += 1

    monkeypatch.setattr("cloud.stream.clock.time", clock)
    assert wait_for_clock(Checkpoint(spark, str(folder), TOPIC), clock.pause, repeat)
    assert repeated == 3 * REMIND_SECONDS + 1
    assert caplog.text.count("clock=behind") == 4


def test_a_right_clock_is_not_waited_for(
    spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def never(_seconds: float) -> bool:
        raise AssertionError

    assert wait_for_clock(Checkpoint(spark, str(folder), TOPIC), never, nothing)
    empty = tmp_path_factory.mktemp("empty")
    assert wait_for_clock(Checkpoint(spark, str(empty), TOPIC), never, nothing)


def test_a_job_that_is_asked_to_end_meanwhile_ends(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.stream.clock.time", Clock(3.0))
    assert not wait_for_clock(Checkpoint(spark, str(folder), TOPIC), lambda _: True, nothing)


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(("time", "stays"), [(8_000, False), (8_001, True)])
def test_a_plan_that_a_slow_clock_has_made_is_made_again(
    spark: SparkSession, folder: Path, time: int, stays: bool
) -> None:
    plan(folder, 2, 3, time, 8_000)
    checkpoint = Checkpoint(spark, str(folder), TOPIC)
    assert wait_for_clock(checkpoint, lambda _: False, nothing)
    assert checkpoint.latest_batch() == (2 if stays else 1)


def test_a_batch_that_is_done_is_never_forgotten(spark: SparkSession, folder: Path) -> None:
    plan(folder, 1, 2, 1, 4_000)
    checkpoint = Checkpoint(spark, str(folder), TOPIC)
    assert wait_for_clock(checkpoint, lambda _: False, nothing)
    assert checkpoint.latest_batch() == 1


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("left", ["", "\x00" * 20, "v1", 'v1\n{"batchWa'])
@pytest.mark.parametrize("log", ["offsets/1", "offsets/0", "commits/1", "oncegate-claims/1"])
def test_a_file_that_a_power_cut_has_torn_stops_the_job(spark: SparkSession, folder: Path, log: str, left: str) -> None:
    checkpoint = Checkpoint(spark, str(folder), TOPIC)
    checkpoint.write_claim(Claim("mine", 1))
    (folder / log).with_name(f".{Path(log).name}.crc").unlink(missing_ok=True)
    (folder / log).write_text(left)
    with pytest.raises(StopError, match=rf"{log} is not whole: .*a new checkpoint"):
        read_all(checkpoint)


def test_a_file_whose_checksum_is_another_stops_the_job(spark: SparkSession, folder: Path) -> None:
    checkpoint = Checkpoint(spark, str(folder), TOPIC)
    checkpoint.write_claim(Claim("mine", 1))
    claim = folder / "oncegate-claims" / "1"
    claim.write_bytes(bytes(claim.stat().st_size))
    with pytest.raises(StopError, match=r"oncegate-claims/1 is not whole: .*Checksum"):
        checkpoint.read_claim()


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("log", ["offsets/1", "offsets/0", "commits/1"])
def test_a_checkpoint_in_a_format_of_another_spark_stops_the_job(spark: SparkSession, folder: Path, log: str) -> None:
    (folder / log).write_text((folder / log).read_text().replace("v1", "v2", 1))
    checkpoint = Checkpoint(spark, str(folder), TOPIC)
    with pytest.raises(StopError, match=f"{log} has the version 'v2'"):
        checkpoint.watermark() if log.startswith("commits") else checkpoint.planned(1)
