"""The job with its table and its checkpoint on a real S3 server, and faults specific to S3."""

import pytest

from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA_ON_S3, CloudSide
from tests.support.waiting import wait_for_end, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.heavy,
    pytest.mark.parametrize("cloud", [DELTA_ON_S3], indirect=True),
]

AUDIT = "audit"
AUDIT_SECONDS_MAX = 600.0
"""Some hundred requests for each of five tables, and no line of the log in between."""


@pytest.mark.guarantee(5)
def test_a_server_that_goes_away_loses_and_doubles_nothing(cloud: CloudSide, gateway: Gateway) -> None:
    assert cloud.s3 is not None
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


def test_an_audit_that_was_killed_between_its_tables_on_the_server_is_whole_the_next_time(cloud: CloudSide) -> None:
    events = readings(30)
    cloud.start()
    cloud.send(Gateway().records(events))
    cloud.wait_for_receipts(30)
    cloud.send(Gateway("gw-2", "00000000000000b2").records(events[:10]))
    cloud.wait_for_receipts(40)
    assert cloud.stop() == 0

    killed = cloud.audit()
    leaves = f"{AUDIT}/audit_leaves"
    wait_until(lambda: cloud.versions(leaves) > 1, "the audit writes its tables", AUDIT_SECONDS_MAX)
    killed.kill()
    assert cloud.versions(f"{AUDIT}/audit_offsets") == 1  # the table was made, and has no row

    whole = cloud.audit()
    assert wait_for_end(whole, AUDIT_SECONDS_MAX) == 0, whole.log_tail()
    assert "Every label is accounted for." in whole.log()
    assert "read now: 40 offsets\nlabels: accepted 30, duplicate 10" in whole.log()
    assert len(cloud.delta_rows(f"{AUDIT}/audit_duplicates")) == 10
