"""Faults of the topic's writers, and of the job's state, that a fleet meets."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.cloud.gateway import Gateway, Record, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]

KAFKA_SECONDS_MAX = 120
"""For one request of a producer to a broker on a busy machine."""
on_both = pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)


def ids(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@on_both
def test_an_aborted_transaction_leaves_nothing_and_an_added_partition_is_read(
    cloud: CloudSide, gateway: Gateway
) -> None:
    cloud.start()
    aborted(cloud, gateway.records(readings(30, start=100)))
    cloud.send(gateway.records(readings(30)), 0)
    cloud.wait_for_rows(30)
    admin = AdminClient({"bootstrap.servers": cloud.bootstrap_servers})
    admin.create_partitions([NewPartitions(cloud.topic, 5)])[cloud.topic].result(60)
    cloud.send(gateway.records(readings(30, start=30)), 4)
    cloud.wait_for_rows(60)
    assert cloud.ids() == ids(60)
    assert cloud.stop() == 0


def aborted(cloud: CloudSide, records: list[Record]) -> None:
    """Send in a transaction that a second producer of the same id fences."""
    first, second = (
        Producer({"bootstrap.servers": cloud.bootstrap_servers, "transactional.id": cloud.topic}) for _ in range(2)
    )
    first.init_transactions(KAFKA_SECONDS_MAX)
    first.begin_transaction()
    for record in records:
        first.produce(cloud.topic, record.value, record.key, 0, headers=list(record.headers))
    assert first.flush(KAFKA_SECONDS_MAX) == 0
    second.init_transactions(KAFKA_SECONDS_MAX)
    with pytest.raises(KafkaException):
        first.commit_transaction(KAFKA_SECONDS_MAX)


@on_both
def test_state_that_is_lost_stops_the_job_and_a_new_checkpoint_goes_on(cloud: CloudSide, gateway: Gateway) -> None:
    first = gateway.records(readings(20))
    cloud.send(first)
    cloud.start()
    cloud.wait_for_receipts(20)
    cloud.wait_for_log("batch=0 stage=done")
    assert cloud.stop() == 0
    shutil.rmtree(cloud.folder / cloud.checkpoint / "state")
    cloud.send([*first, *gateway.records(readings(20, start=20))])
    assert cloud.wait_for_end(cloud.start()) == 1
    assert (len(cloud.rows()), cloud.receipted()) == (20, 20)
    shutil.rmtree(cloud.folder / cloud.checkpoint)
    cloud.start()
    cloud.wait_for_receipts(60)
    assert cloud.ids() == ids(40)
