"""A transaction that has ended for the coordinator and is still open in a partition.

A restarted broker may consider a transaction ended that it has not ended in each partition (Kafka 4.3: "these
partitions are likely deleted already"). Its records there share the outcome of the producer's next transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agent.forward.kafka.record import encode
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.delivery.raw_produce import leave_open
from tests.agent.forward.events import readings
from tests.agent.forward.kafka.producers import remembered
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox

pytestmark = pytest.mark.kafka

MODE = "exactly-once"
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Otherwise the broker queries the coordinator before it opens a transaction in a partition."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaTopic]:
    with Broker(tmp_path / "unverified", properties=UNVERIFIED) as broker:
        side = KafkaTopic(broker.bootstrap_servers, f"hanging.{uuid4().hex}")
        side.partitions = 1
        side.create_topic()
        yield side


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_what_hangs_of_a_transaction_that_was_never_to_be_committed_is_not_committed_with_the_next(
    kafka: KafkaTopic, gateway: str
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(10))
    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until_forwarded(outbox)
    outbox.append(*readings(10, 10))
    [state] = remembered(kafka.bootstrap_servers, kafka.topic)
    records = [encode(event, gateway) for event in outbox.stored()[10:17]]
    leave_open(kafka.bootstrap_servers, kafka.topic, gateway, state, records)
    assert kafka.ends() != kafka.ends("read_uncommitted"), "it hangs"

    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)
    assert kafka.ends() == kafka.ends("read_uncommitted")
