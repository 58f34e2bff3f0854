"""The rights that exactly-once delivery needs, on a real broker that grants some of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from agent.cli.doctor import group_rights
from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.kafka import KafkaConnection
from agent.cli.doctor.transactions import rights
from agent.cli.doctor.transactions.rights import check_transactional_ids
from agent.config.settings import KafkaSettings
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

USER, PASSWORD = "gateway-1", "correct-horse"
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Yield a broker with a login beside its plain listener, whose users are super users; and the login's port."""
    (port,) = ports.free(1)
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.second.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    login = Listener("SASL_PLAINTEXT", port, port, properties)
    with Broker(tmp_path_factory.mktemp("secured"), login, scram={USER: PASSWORD}) as broker:
        broker.create_topics("t")
        yield broker, port


def grant(broker: Broker, *rights: tuple[ResourceType, str, AclOperation]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    bindings = [AclBinding(kind, name, literal, f"User:{USER}", "*", what, allow) for kind, name, what in rights]
    for future in admin.create_acls(bindings).values():
        future.result(SECONDS_MAX)


def test_the_rights_on_the_id_and_the_group_of_each_lane_are_checked_and_no_transaction_ends(
    secured: tuple[Broker, int],
) -> None:
    broker, port = secured
    grant(
        broker,
        (ResourceType.TOPIC, "t", AclOperation.DESCRIBE),
        (ResourceType.TRANSACTIONAL_ID, "gw1", AclOperation.WRITE),
        (ResourceType.GROUP, "oncegate-outbox-gw1", AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, "gw1/alarms", AclOperation.WRITE),
    )
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    connection = KafkaConnection.open(KafkaSettings(f"127.0.0.1:{port}", "t", "exactly-once", login))
    running = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "gw1/alarms"})
    running.init_transactions(SECONDS_MAX)
    running.begin_transaction()
    running.produce("t", b"x")

    def findings() -> list[Finding]:
        return list(check_transactional_ids(connection, "gw1", ["alarms", "doors"], agent_runs=False))

    # A broker loads its groups when the first one is asked for.
    wait_until(lambda: findings()[0].condition is Condition.FINE, "the groups are served")
    own, alarms, doors = findings()
    assert own.text == "the agent may use transactional id gw1 and its group"
    assert (alarms.condition, alarms.text) == (
        Condition.WRONG,
        "group oncegate-outbox-gw1/alarms: the agent lacks READ",
    )
    assert (doors.condition, doors.text) == (Condition.WRONG, "transactional id gw1/doors: the agent lacks WRITE")
    running.commit_transaction(SECONDS_MAX)  # raises where another producer has taken the id


@pytest.mark.parametrize("code", sorted(group_rights._MOVING))
def test_a_groups_coordinator_that_is_being_elected_is_asked_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    errors = iter([KafkaError(code), KafkaError(code)])

    def answer(*_: object) -> frozenset[AclOperation]:
        if error := next(errors, None):
            raise KafkaException(error)
        return frozenset({AclOperation.READ})

    monkeypatch.setattr(group_rights, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(group_rights, "_ask", answer)
    assert rights._refusal_of_group(KafkaConnection.open(KafkaSettings("127.0.0.1:1")), "gw1") is None


def test_a_group_without_a_coordinator_is_not_checked_and_no_right_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))

    monkeypatch.setattr(group_rights, "REQUEST_SECONDS_MAX", -1.0)
    monkeypatch.setattr(group_rights, "_ask", answer)
    finding = rights._refusal_of_group(KafkaConnection.open(KafkaSettings("127.0.0.1:1")), "gw1")
    assert finding is not None
    assert "not checked" in finding.text
    assert finding.hint == ""
