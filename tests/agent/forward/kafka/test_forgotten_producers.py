"""Brokers that have expired the producer of an idle gateway."""

import socket
from collections.abc import Iterator

import pytest

from agent.forward.modes.transaction import GROUP_PREFIX
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, new_topic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_settled
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MODES = ("at-least-once", "exactly-once", "at-most-once")
SOON = {
    "producer.id.expiration.ms": 500,
    "producer.id.expiration.check.interval.ms": 100,
    "transactional.id.expiration.ms": 2_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}
"""Kafka's defaults are a day, ten minutes, a week and an hour."""
EVENTS = 50


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yield a broker that expires producers soon."""
    with Broker(tmp_path_factory.mktemp("forgetful"), properties=SOON) as broker:
        yield broker


@pytest.fixture
def kafka(forgetful: Broker) -> KafkaTopic:
    return new_topic(forgetful.bootstrap_servers, partitions=1)


def assert_kept(kafka: KafkaTopic, outbox: MemoryOutbox, mode: str) -> None:
    """Assert that each event is there; once, since none was in flight when the producer expired."""
    assert_each_once(kafka, outbox)
    if mode != "at-most-once":
        assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
def test_a_producer_that_the_broker_has_forgotten_goes_on(
    kafka: KafkaTopic, gateway: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()
    with forwarding(kafka.settings(mode), outbox, gateway):
        for count in range(1, 4):
            outbox.append(*readings(EVENTS, (count - 1) * EVENTS))
            wait_until_settled(outbox)
            wait_until(lambda: not remembered(kafka.bootstrap_servers, kafka.topic), "the producer is forgotten")

    assert_kept(kafka, outbox, mode)
    assert "kafka=failing" not in caplog.text


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_a_transactional_id_that_has_expired_is_taken_anew_and_it_is_said(
    kafka: KafkaTopic, gateway: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox(*readings(EVENTS))

    with forwarding(kafka.settings("exactly-once"), outbox, gateway):
        wait_until_settled(outbox)
        wait_until(lambda: gateway.encode() not in transactional_ids(kafka.bootstrap_servers), "the id is forgotten")
        kafka.forget_offsets(GROUP_PREFIX + gateway)  # also after a week: the latest transaction's marker
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until_settled(outbox)

    assert_kept(kafka, outbox, "exactly-once")
    assert "kafka=failing" in caplog.text
    reasons = ("not currently assigned to its transactional id", "Erroneous state")  # the cause, or its effect
    assert any(reason in caplog.text for reason in reasons)


DESCRIBE_PRODUCERS = 61
LIST_TRANSACTIONS = 66
REQUEST_SECONDS_MAX = 10.0
_HEADER_BYTES = 4 + 1 + 4
"""Of the answer: correlation id, tags, throttle time."""


def remembered(bootstrap_server: str, topic: str) -> int:
    """Return how many producers the leader of partition 0 keeps there (DescribeProducers, version 0)."""
    name = topic.encode()
    body = b"\x02" + bytes([len(name) + 1]) + name + b"\x02" + bytes(4) + b"\x00\x00"
    answer = _ask(bootstrap_server, DESCRIBE_PRODUCERS, body)
    # Topics (one), its name, partitions (one), its number; then error code, error message (none), producers.
    at = _HEADER_BYTES + 1 + 1 + len(name) + 1 + 4
    assert answer[at : at + 2] == b"\x00\x00", f"error {int.from_bytes(answer[at : at + 2])}"
    assert answer[at + 2] == 0
    return answer[at + 3] - 1


def transactional_ids(bootstrap_server: str) -> bytes:
    """Return the answer that names the transactional ids that a broker keeps (ListTransactions, version 0)."""
    return _ask(bootstrap_server, LIST_TRANSACTIONS, b"\x01\x01\x00")


def _ask(bootstrap_server: str, kind: int, body: bytes) -> bytes:
    """Send a request in version 0, with tags, without a client's name."""
    request = kind.to_bytes(2) + bytes(6) + b"\xff\xff\x00" + body
    host, port = bootstrap_server.split(":")
    with socket.create_connection((host, int(port)), REQUEST_SECONDS_MAX) as connection:
        connection.sendall(len(request).to_bytes(4) + request)
        with connection.makefile("rb") as answers:
            return answers.read(int.from_bytes(answers.read(4)))
