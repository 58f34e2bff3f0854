"""The job with its table and its checkpoint on a real S3 server, and faults specific to S3."""

from __future__ import annotations

import pytest

from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA_ON_S3, STANDSTILL_SECONDS_MAX, CloudSide
from tests.support.waiting import wait_for_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.heavy,
    pytest.mark.parametrize("cloud", [DELTA_ON_S3], indirect=True),
]


def test_maintenance_is_refused_beside_the_job_and_keeps_every_row_once_it_has_stopped(cloud: CloudSide) -> None:
    gateway, events = Gateway(), readings(40)
    cloud.start()
    for batch in range(3):
        cloud.send(gateway.records(events[10 * batch : 10 * (batch + 1)]))
        cloud.wait_for_receipts(10 * (batch + 1))
    refused = cloud.maintain()
    assert wait_for_end(refused, STANDSTILL_SECONDS_MAX) == 1
    assert "--job-is-stopped" in refused.log()
    assert cloud.stop() == 0

    done = cloud.maintain("--job-is-stopped")
    assert wait_for_end(done, STANDSTILL_SECONDS_MAX) == 0, done.log_tail()
    cloud.send([*gateway.records(events[30:]), *Gateway("gw-2", "00000000000000b2").records(events[:30])])
    cloud.start()
    cloud.wait_for_receipts(70)
    assert cloud.ids() == [str(number) for number in range(40)]


def test_a_server_that_goes_away_loses_and_doubles_nothing(cloud: CloudSide) -> None:
    assert cloud.s3 is not None
    gateway = Gateway()
    cloud.start()
    cloud.send(gateway.records(readings(10)))
    cloud.wait_for_receipts(10)
    cloud.send(gateway.records(readings(200, start=10)))
    cloud.wait_for_log("batch=1 stage=planned")
    cloud.s3.kill()
    assert cloud.wait_for_end() == 1
    cloud.s3.start()
    cloud.start()
    cloud.wait_for_receipts(210)
    assert cloud.ids() == [str(number) for number in range(210)]
