"""The same command on a cluster: a master and two workers, executors that are killed within a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.record import ClockTrust
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]

PAIRS = 10_000


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_an_executor_that_dies_between_two_evaluations_of_a_batch_loses_and_doubles_nothing(
    cloud: CloudSide, tmp_path: Path
) -> None:
    """Each event has a fresh and a late duplicate: whichever an evaluation keeps, it is one row."""
    cloud.window = "40s"
    with SparkCluster(tmp_path / "cluster") as cluster:
        cloud.master = cluster.url
        gateway, stranger = Gateway(), Gateway("gw-2", "00000000000000b2", clock=ClockTrust.UNTRUSTED)
        job = cloud.start()
        sent = 0

        def fresh_traffic_is_written() -> bool:
            nonlocal sent
            cloud.send(gateway.records(readings(1, start=sent)))
            sent += 1
            return "late=0" in job.log() or "passes=1" in job.log()

        cloud.wait(fresh_traffic_is_written, "a batch without late events")
        cloud.wait_for_receipts(sent)
        before = job.log().count("stage=write")
        events = readings(PAIRS, start=sent)
        pairs = [(gateway.record(event), stranger.record(event)) for event in events]
        cloud.send([copy for fresh, late in pairs[: PAIRS // 2] for copy in (fresh, late)], partition=0)
        cloud.send([copy for fresh, late in pairs[PAIRS // 2 :] for copy in (late, fresh)], partition=1)
        stage = "stage=looked-up" if cloud.postgres is None else "stage=write"
        cloud.wait(lambda: stage in job.log() and job.log().count("stage=write") > before, stage)
        cluster.kill_an_executor()
        cloud.wait_for_receipts(sent + 2 * PAIRS)
        cloud.wait(lambda: "has been removed" in job.log() or "Lost executor" in job.log(), "the executor's loss")
    assert cloud.ids() == [str(number) for number in range(sent + PAIRS)]
