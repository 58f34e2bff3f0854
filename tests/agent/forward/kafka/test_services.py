"""Services that lack what receipts depend on are refused; the versions of Kafka that are supported have all of it."""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.kafka import KafkaConnection, check_broker, check_topic
from agent.forward.kafka.health import UNSUPPORTED
from agent.telemetry.links import LinkName
from simulators.services.install import jars
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import LinkedTopic, new_topic
from tests.agent.forward.checks import assert_sent_and_receipted
from tests.agent.forward.events import readings
from tests.agent.forward.links import TcpLink
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

METADATA, DESCRIBE_TOPIC_PARTITIONS, LIST_OFFSETS = 3, 75, 2
WITHOUT_TOPIC_IDS = {METADATA: 9, DESCRIBE_TOPIC_PARTITIONS: None}
"""Topic ids came with version 10 of Metadata (KIP-516)."""
WITHOUT_LEADER_EPOCHS = {LIST_OFFSETS: 3}


@pytest.mark.guarantee(4)
@pytest.mark.parametrize(
    ("limits", "reason"),
    [(WITHOUT_TOPIC_IDS, "no topic ids (KIP-516)"), (WITHOUT_LEADER_EPOCHS, "no leader epochs (KIP-320)")],
)
def test_nothing_is_sent_to_a_service_without_topic_ids_or_leader_epochs(
    linked: LinkedTopic, limits: Mapping[int, int | None], reason: str
) -> None:
    outbox = MemoryOutbox(*readings(5))
    with VersionLink(*linked.link_ends, limits), forwarding(linked.settings(), outbox) as links:
        wait_until(lambda: links.state(LinkName.KAFKA) == UNSUPPORTED, "the service is refused")
        assert reason in links.reports()[LinkName.KAFKA].reason
    assert outbox.new == 5
    assert linked.records() == []
    with VersionLink(*linked.link_ends, {}), forwarding(linked.settings(), outbox):
        wait_until(lambda: outbox.new == 0, "a service with all versions behind the same link is used")


def test_the_doctor_refuses_a_service_without_topic_ids(linked: LinkedTopic) -> None:
    with VersionLink(*linked.link_ends, WITHOUT_TOPIC_IDS):
        finding, topic = check_broker(KafkaConnection.open(linked.settings()))
    assert (finding.condition, topic) == (Condition.WRONG, None)
    assert "no topic ids (KIP-516)" in finding.text


VERSIONS = (jars.BROKER, jars.BROKER_3_9)
"""The sets of jars, and the version of their transactions: Kafka announces one from 4.0 on."""


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("version"), jar_set=str(request.param)) as running:
        yield running


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_each_mode_works_with_both_ends_of_the_supported_versions(version: Broker, mode: str) -> None:
    kafka = new_topic(version.bootstrap_servers)
    connection, topic = assert_sent_and_receipted(kafka, kafka.settings(mode))
    assert [one.condition for one in check_topic(connection, topic)][1:] == [Condition.FINE] * 5


_ENTRY = struct.Struct(">hhhB")
_NEVER = 32_767


class VersionLink(TcpLink):
    """Limit the versions in the answer to the first request of each connection, which is ApiVersions."""

    def __init__(self, port: int, target: int, limits: Mapping[int, int | None]) -> None:
        """Prepare the link; `limits` are the highest versions by request, None for a request that is not offered."""
        super().__init__(port, target)
        self._limits = limits

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError, struct.error):
            size = far.recv(4, socket.MSG_WAITALL)
            if answer := far.recv(int.from_bytes(size), socket.MSG_WAITALL):
                near.sendall(size + self._limited(answer))
                super()._answer(far, near)

    def _limited(self, answer: bytes) -> bytes:
        """Return the answer (version 3 or later: correlation id, error, compact array) with the limited versions."""
        changed = bytearray(answer)
        count = answer[6] - 1
        assert 0 < count < 127
        for at in range(7, 7 + count * _ENTRY.size, _ENTRY.size):
            key, low, high, tags = _ENTRY.unpack_from(answer, at)
            assert tags == 0
            if key in self._limits:
                limit = self._limits[key]
                low, high = (_NEVER, _NEVER) if limit is None else (low, min(high, limit))
                _ENTRY.pack_into(changed, at, key, low, high, tags)
        return bytes(changed)
