"""Which checkpoint may continue with which table; table and checkpoint are real folders."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.delta.sink import QUARANTINE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.stream.checkpoint import Checkpoint, Claim
from cloud.stream.claim import claim_table, is_first_start
from cloud.table.commits import CLAIM_ONLY, Commit
from cloud.table.lake import LakeSink
from tests.cloud.tables import delta_sink, plan

pytestmark = pytest.mark.spark

TOPIC = "events"


class Side:
    """Tables and checkpoints under one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def table(self, name: str = "events") -> LakeSink:
        return delta_sink(self._spark, self._folder / name)

    def checkpoint(self, name: str = "checkpoint") -> Checkpoint:
        return Checkpoint(self._spark, str(self._folder / name), TOPIC)

    def run(self, sink: LakeSink, checkpoint: str = "checkpoint", batch: int = 0) -> Commit:
        """Plan a batch as Spark does, and commit it."""
        last = claim_table(sink, self.checkpoint(checkpoint), TOPIC, "id")
        plan(self._folder / checkpoint, batch, 5)
        commit = replace(last, batch=batch, ends={0: 5}, first={0: 0}, epochs={0: 2}, birth=1, window_seconds=60)
        sink.claim(commit)  # without rows
        return commit


@pytest.fixture
def side(spark: SparkSession, tmp_path: Path) -> Side:
    return Side(spark, tmp_path)


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_another_table_that_was_put_in_its_place_while_the_job_ran_is_not_continued(side: Side, tmp_path: Path) -> None:
    sink = side.table()
    written = side.run(sink)
    side.run(side.table("other"), "of-the-other")
    for folder in (tmp_path / "events", tmp_path / "events_quarantine"):
        shutil.rmtree(folder)
    (tmp_path / "other").rename(tmp_path / "events")
    with pytest.raises(StopError, match="another one was put in its place"):
        sink.claim(replace(written, batch=1))
    with pytest.raises(StopError, match=f"--succeeds {sink.id}"):
        claim_table(side.table(), side.checkpoint(), TOPIC, "id")


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_new_table_goes_on_with_the_quarantine_of_one_that_was_lost(
    side: Side, spark: SparkSession, tmp_path: Path
) -> None:
    lost = side.run(side.table(), batch=5)
    quarantine = DeltaTable(spark, str(tmp_path / "events_quarantine"), QUARANTINE)
    nothing = spark.createDataFrame([], QUARANTINE.schema)
    quarantine.append(nothing, lost)
    shutil.rmtree(tmp_path / "events")
    first = replace(claim_table(side.table(), side.checkpoint("new"), TOPIC, "id"), batch=0)
    quarantine.append(nothing, first)
    assert quarantine.last_commit() == first


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_used_checkpoint_never_takes_over_the_table_of_another(side: Side) -> None:
    first, second = side.table("first"), side.table("second")
    side.run(first, "theirs")
    side.run(second, "mine")
    side.run(first, "later")
    side.run(second, "later-still", batch=0)
    with pytest.raises(StopError, match="Start with a new checkpoint"):
        claim_table(side.table("third"), side.checkpoint("later"), TOPIC, "id")
    third = side.table("third")
    assert third.last_commit() is None
    side.run(third, "of-the-third")
    with pytest.raises(StopError, match="Start with a new checkpoint"):
        claim_table(third, side.checkpoint("later"), TOPIC, "id")


def killed(sink: LakeSink) -> Any:
    """Return a table whose job is killed before it commits its claim."""
    known = {name: getattr(sink, name) for name in ("id", "last_commit", "last_claim")}
    return SimpleNamespace(**known, claim=lambda _: 1 / 0)


@pytest.mark.heavy
def test_a_claim_that_was_written_down_and_not_made_is_made_and_ends_the_older_job_for_good(side: Side) -> None:
    side.run(side.table())
    with pytest.raises(ZeroDivisionError):
        claim_table(killed(side.table()), side.checkpoint("new"), TOPIC, "id")
    last = claim_table(side.table(), side.checkpoint("new"), TOPIC, "id")
    assert (last.claim, last.batch, last.ends, last.epochs) == (2, CLAIM_ONLY, {0: 5}, {0: 2})
    with pytest.raises(StopError, match="has taken over the table from claim 1 of this checkpoint"):
        claim_table(side.table(), side.checkpoint(), TOPIC, "id")


@pytest.mark.heavy
def test_a_new_checkpoint_may_read_everything_again_and_the_same_one_only_once(side: Side) -> None:
    side.run(side.table())
    with pytest.raises(ZeroDivisionError):
        claim_table(killed(side.table()), side.checkpoint("new"), TOPIC, "id", read_again=True)
    assert is_first_start(side.checkpoint("new"), side.table().last_commit())
    last = claim_table(side.table(), side.checkpoint("new"), TOPIC, "id", read_again=True)
    assert (last.claim, last.ends, last.first, last.epochs, last.birth) == (2, {}, {}, {}, None)
    written = side.run(side.table(), "new")
    assert not is_first_start(side.checkpoint("new"), side.table().last_commit())
    assert claim_table(side.table(), side.checkpoint("new"), TOPIC, "id", read_again=True) == written


@pytest.mark.guarantee(5)
def test_a_kill_while_a_claim_is_renewed_leaves_the_earlier_one(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = side.checkpoint()
    checkpoint.write_claim(Claim("mine", 1))
    files = checkpoint._files
    with monkeypatch.context() as context:
        used = SimpleNamespace(mkdirs=files.mkdirs, create=files.create, rename=lambda *_: 1 / 0)
        context.setattr(checkpoint, "_files", used)
        with pytest.raises(ZeroDivisionError):
            checkpoint.write_claim(Claim("mine", 2))
    assert side.checkpoint().read_claim() == Claim("mine", 1)
    side.checkpoint().write_claim(Claim("mine", 2))
    assert side.checkpoint().read_claim() == Claim("mine", 2)


def test_a_claim_that_a_newer_release_has_written_is_read(side: Side, tmp_path: Path) -> None:
    side.checkpoint().write_claim(Claim("mine", 1))
    (tmp_path / "checkpoint/oncegate-claims/.1.crc").unlink()
    (tmp_path / "checkpoint/oncegate-claims/1").write_text('{"checkpoint": "mine", "number": 1, "newer": 2}')
    assert side.checkpoint().read_claim() == Claim("mine", 1)
