"""The whole programs beside one another: a job, and audits and maintenance while it writes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(5)]
PAUSE_SECONDS = 0.3


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_audits_and_maintenance_beside_a_running_job_find_no_loss_and_end_nothing(cloud: CloudSide) -> None:
    job = cloud.start()
    with sending(cloud) as sent:
        cloud.wait(lambda: cloud.receipted() > 0, "the first receipts")
        maintenance = cloud.maintain()
        cloud.audited(0, "--grace", "1h")
        assert cloud.wait_for_end(maintenance) == 0, maintenance.log()[-3000:]
    assert job.alive
    cloud.wait_for_receipts(sum(sent))
    assert cloud.stop() == 0
    rows = sum(sent) - len(sent)
    assert cloud.audited(0) == f"accepted {rows}"
    assert len(cloud.rows()) == rows


@contextmanager
def sending(cloud: CloudSide) -> Iterator[list[int]]:
    """Send one to three events at a time, of which one comes twice; yield how many records."""
    gateway, ended = Gateway(), threading.Event()
    sent: list[int] = []

    def send() -> None:
        start = 0
        while not ended.wait(PAUSE_SECONDS):
            count = 1 + len(sent) % 3
            records = gateway.records(readings(count, start=start))
            cloud.send([*records, records[0]])
            start += count
            sent.append(count + 1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield sent
    finally:
        ended.set()
        sender.join()
