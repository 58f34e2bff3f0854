"""A cluster of three brokers, and an unclean election."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

import pytest

from agent.forward.receipts.round import SharedRound
from simulators.services.kafka.cluster import KafkaCluster
from tests.agent.forward.broker import KafkaTopic, new_topic, sequence
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, processed, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

ROUNDS = "at-least-once"
"""With a poller of receipts beside it, whose rounds confirm the acks."""
MODES = ("at-least-once alone", ROUNDS, "exactly-once")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@contextmanager
def sending(kafka: KafkaTopic, mode: str, outbox: MemoryOutbox, gateway: str) -> Iterator[None]:
    shared = SharedRound(30.0) if mode == ROUNDS else None
    with ExitStack() as stack:
        stack.enter_context(forwarding(kafka.settings(mode.split(maxsplit=1)[0]), outbox, gateway, shared=shared))
        if shared is not None:
            stack.enter_context(receipting(kafka.settings(), outbox, gateway, shared=shared))
        yield


@pytest.mark.parametrize("mode", MODES)
def test_with_too_few_in_sync_nothing_is_marked_until_they_are_back(cluster: KafkaCluster, mode: str) -> None:
    cluster.start()
    kafka = new_topic(cluster.bootstrap_servers, replicas=3)
    outbox = MemoryOutbox(*readings(100))

    with sending(kafka, mode, outbox, "gw-cluster"):
        wait_until_forwarded(outbox)
        for broker in cluster.brokers[:2]:
            broker.kill()
        reads = outbox.reads
        outbox.append(*readings(100, 100))
        wait_until(lambda: outbox.reads > reads, "it tries")
        assert outbox.new == 100
        cluster.start()
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
def test_what_an_unclean_election_takes_is_sent_again_though_the_session_goes_on(
    cluster: KafkaCluster, mode: str
) -> None:
    cluster.start()
    kafka = new_topic(cluster.bootstrap_servers, partitions=1, replicas=2)
    kafka.configure_topic("min.insync.replicas", "1")
    kafka.configure_topic("unclean.leader.election.enable", "true")
    leader = kafka.partition(0).leader
    (follower,) = set(kafka.partition(0).replicas) - {leader}
    outbox = MemoryOutbox(*readings(50))

    with sending(kafka, mode, outbox, "gw-unclean"):
        wait_until_forwarded(outbox)
        cluster.node(follower).kill()
        wait_until(lambda: kafka.partition(0).isrs == [leader], "the leader is alone")
        outbox.append(*readings(50, 50))
        wait_until_forwarded(outbox)
        cluster.node(leader).kill()
        cluster.node(follower).start()
        wait_until(lambda: kafka.partition(0).leader == follower, f"node {follower} leads")
        outbox.append(*readings(200, 100))
        wait_until_forwarded(outbox)
        cluster.start()
        kafka.commit(None, kafka.receipt())
        alone = mode != ROUNDS
        with receipting(kafka.settings(), outbox, "gw-unclean") if alone else nullcontext():

            def settled() -> bool:
                if outbox.new == 0 and outbox.forwarded():
                    kafka.commit(None, kafka.receipt())
                return processed(outbox) == 300

            wait_until(settled, "all are processed")

    assert {sequence(record) for record in kafka.records()} == set(range(1, 301))
