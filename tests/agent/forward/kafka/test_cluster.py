"""A cluster of three brokers, and an unclean election."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.receipts.polling import processed
from tests.agent.forward.running import forwarding, receipting
from tests.support.kafka_cluster import KafkaCluster
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

MODES = ("at-least-once", "exactly-once")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def await_leader(kafka: KafkaTopic, number: int) -> None:
    wait_until(lambda: kafka.leader(0) == number, f"node {number} leads")


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
def test_what_an_unclean_election_takes_is_sent_again_though_the_session_goes_on(
    cluster: KafkaCluster, mode: str
) -> None:
    cluster.start()
    kafka = KafkaTopic(cluster.bootstrap_servers, f"unclean.{uuid4().hex}", replicas=2)
    kafka.partitions = 1
    kafka.create_topic()
    kafka.configure_topic("min.insync.replicas", "1")
    kafka.configure_topic("unclean.leader.election.enable", "true")
    leader = kafka.leader(0)
    (follower,) = kafka.replicas(0) - {leader}
    outbox = MemoryOutbox()
    outbox.append(*readings(50))

    with forwarding(kafka.settings(mode), outbox, f"gw-unclean-{mode}"):
        wait_until_forwarded(outbox)
        cluster.node(follower).kill()
        wait_until(lambda: kafka.in_sync(0) == {leader}, "the leader is alone")
        outbox.append(*readings(50, 50))
        wait_until_forwarded(outbox)
        cluster.node(leader).kill()
        cluster.node(follower).start()
        await_leader(kafka, follower)
        outbox.append(*readings(200, 100))
        wait_until_forwarded(outbox)
        cluster.start()
        kafka.commit(None, kafka.receipt())
        with receipting(kafka.settings(mode), outbox, f"gw-unclean-{mode}"):

            def settled() -> bool:
                if outbox.new == 0 and outbox.forwarded():
                    kafka.commit(None, kafka.receipt())
                return processed(outbox) == 300

            wait_until(settled, "all are processed")

    assert {sequence(record) for record in kafka.records()} == set(range(1, 301))
