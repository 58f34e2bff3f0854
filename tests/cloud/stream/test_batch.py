"""A batch that the table already has: its effect on the clock check remains at every later start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.stream.batch import BatchWriter
from cloud.stream.checkpoint import Checkpoint
from cloud.stream.progress import Observer
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY, Commit
from tests.cloud.gateway import Gateway, readings
from tests.cloud.tables import delta_sink, plan, topic

pytestmark = pytest.mark.spark

NOW, HOUR = 1_700_000_000_000, 3_600_000
TOPIC = "events"


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_a_slow_clock_let_into_the_state_with_a_batch_that_is_done_is_known_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    birth = NOW - 5 * HOUR
    sink = delta_sink(spark, tmp_path / "events")
    # A restored checkpoint: its batches are repeated under another claim, planned by a clock that is behind.
    sink.claim(Commit("t", "c", 2, CLAIM_ONLY, TOPIC, "id", {0: 0}, {0: 3}, {0: 0}, birth, 3600))
    plan(tmp_path / "checkpoint", 0, 3, NOW - 2 * HOUR)
    checkpoint = Checkpoint(spark, str(tmp_path / "checkpoint"), TOPIC)
    records = read_records(topic(spark, Gateway().records(readings(3), NOW), appended=NOW))
    last = sink.last_commit()
    assert last is not None
    whole: Any = SimpleNamespace(check_settings=lambda: None, check=lambda read, _: read.epochs)
    refused: Any = SimpleNamespace(commit=lambda _: False)  # Kafka accepts no receipt
    writer = BatchWriter(checkpoint, sink, refused, last, 3600, whole, Observer())
    for _ in range(2):  # a second call changes nothing
        writer(records, 0)
        known = delta_sink(spark, tmp_path / "events").last_commit()

        assert known is not None
        assert (known.birth, known.ends, sink._table.rows().count()) == (NOW, {0: 3}, 0)
        assert known.checkpoint == "c"
