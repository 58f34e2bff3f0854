"""The rights that docs/kafka.md grants a gateway, on a broker with ACLs: each is needed, and no others are there."""

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.kafka import KafkaConnection, check_broker, check_rights, check_topic
from agent.cli.doctor.receipts import check_receipts
from agent.cli.doctor.rights import EVERYTHING, check_excess, check_transactional_ids
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.modes.lanes import ForwardedLane
from contract import topics
from simulators.evidence.topic import Topic, reading
from tests.agent.forward.broker import GROUP, KafkaTopic
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding, receipting
from tests.docs.rights import GATEWAY, denial, rights
from tests.support.logins.secured_broker import CONSUMER, STOLEN, STRANGER, SecuredBroker, secured_broker
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(4)]

LANE = "alarms"
OTHER_TOPIC = "plant.orders"
SECONDS_MAX = 60.0
_REFUSAL = re.compile("uthorization failed|committed offsets: Local: Timed out")
"""The client asks again until its time is over where it may not read a group."""
OF_THE_PAGE = [one for one in rights(topics.EVENTS, GROUP) if one.principal == f"User:{GATEWAY}"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Yield a broker on which the principals have the rights of the page, and gw-2 those of another gateway."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        for topic in (topics.EVENTS, OTHER_TOPIC):
            KafkaTopic(running.broker.bootstrap_servers, topic).create_topic()
        running.grant(topics.EVENTS, GROUP)
        others = rights(topics.EVENTS, GROUP, STRANGER)
        running.create(one for one in others if one.principal == f"User:{STRANGER}")
        yield running


@pytest.fixture
def kafka(secured: SecuredBroker) -> KafkaTopic:
    return KafkaTopic(secured.broker.bootstrap_servers, topics.EVENTS)


def settings_of(secured: SecuredBroker) -> KafkaSettings:
    login = secured.login(GATEWAY)
    return KafkaSettings(login.pop("bootstrap.servers"), topics.EVENTS, "exactly-once", login)


def examined(secured: SecuredBroker) -> list[Finding]:
    """Return the findings of `doctor` about rights."""
    connection = KafkaConnection.open(settings_of(secured))
    finding, topic = check_broker(connection)
    assert topic is not None, finding
    return [
        *check_rights(topic),
        *check_transactional_ids(connection, GATEWAY, [LANE], agent_runs=False),
        *check_topic(connection, topic),
        *check_receipts(connection, ReceiptSettings(), len(topic.partitions), None, 0),
        *check_excess(connection, topic, GROUP, GATEWAY, [LANE]),
    ]


def conspicuous(secured: SecuredBroker) -> list[str]:
    """Return the findings that are not fine, beside those about a topic of a single broker, and no receipts yet."""
    findings = [one for one in examined(secured) if one.condition is not Condition.FINE]
    return [
        f"{one.text}: {one.hint}" for one in findings if "replicas" not in one.text and "nothing yet" not in one.text
    ]


def named(binding: AclBinding) -> str:
    return f"{AclOperation(binding.operation).name} on {binding.name}"


@pytest.mark.parametrize("missing", OF_THE_PAGE, ids=named)
def test_without_one_of_the_rights_something_stops_and_doctor_names_it(
    secured: SecuredBroker, kafka: KafkaTopic, caplog: pytest.LogCaptureFixture, missing: AclBinding
) -> None:
    wait_until(lambda: conspicuous(secured) == [], "with all rights doctor has nothing to say")
    lane = LANE if missing.name.endswith("/") else ""
    outbox = MemoryOutbox(*readings(5))

    secured.revoke(missing)
    try:
        told = conspicuous(secured)
        with forwarding(settings_of(secured), outbox, lane=ForwardedLane(lane)):
            if missing.operation in (AclOperation.READ, AclOperation.WRITE):
                wait_until(lambda: _REFUSAL.search(caplog.text) is not None, "forwarding stops")
                assert outbox.new == 5
            else:
                wait_until_forwarded(outbox)
        kafka.commit(None, kafka.receipt())
        with receipting(settings_of(secured), outbox):
            if missing.operation is AclOperation.DESCRIBE:
                wait_until(lambda: _REFUSAL.search(caplog.text) is not None, "receipts are missing")
                assert outbox.forwarded()
    finally:
        secured.create([missing])

    right, name = AclOperation(missing.operation).name, missing.name.rstrip("/")
    (text,) = told
    assert right in text
    assert name in text or right == "DESCRIBE_CONFIGS"
    with forwarding(settings_of(secured), outbox, lane=ForwardedLane(lane)), receipting(settings_of(secured), outbox):
        wait_until_forwarded(outbox)
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: len(outbox.forwarded()), 0, "with the right everything has its receipt")


def commit_to(group: str) -> Callable[[dict[str, str]], object]:
    """Commit as the job does, without joining the group."""

    def commit(login: dict[str, str]) -> None:
        admin = AdminClient({**login})
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topics.EVENTS, 0, 0)])
        answer = admin.alter_consumer_group_offsets([request])[group].result(SECONDS_MAX)
        for offset in answer.topic_partitions:
            if offset.error is not None:
                raise KafkaException(offset.error)

    return commit


def take_id(name: str) -> Callable[[dict[str, str]], object]:
    return lambda login: Producer({**login, "transactional.id": name, "log_level": 0}).init_transactions(SECONDS_MAX)


def write_elsewhere(login: dict[str, str]) -> None:
    producer = Producer(login)
    errors: list[KafkaError | None] = []
    producer.produce(OTHER_TOPIC, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(SECONDS_MAX)
    raise KafkaException(errors[0])


REFUSED = {
    "commit a receipt": (commit_to(GROUP), "GROUP"),
    "commit another gateway's marker": (commit_to(f"oncegate-outbox-{STRANGER}"), "GROUP"),
    "commit the marker of a longer name": (commit_to(f"oncegate-outbox-{GATEWAY}0"), "GROUP"),
    "take another gateway's transactional id": (take_id(STRANGER), "TRANSACTIONAL_ID"),
    "take the transactional id of a longer name": (take_id(f"{GATEWAY}0"), "TRANSACTIONAL_ID"),
    "write to another topic": (write_elsewhere, "TOPIC"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_granted_is_refused(secured: SecuredBroker, what: str) -> None:
    attempt, resource = REFUSED[what]
    with pytest.raises(KafkaException) as refused:
        attempt(secured.login(GATEWAY))
    assert refused.value.args[0].name() == f"{resource}_AUTHORIZATION_FAILED"


def test_oncegate_sim_reads_the_topic_by_the_rights_of_a_consumer(secured: SecuredBroker, kafka: KafkaTopic) -> None:
    login = secured.login(CONSUMER)
    topic = Topic(login.pop("bootstrap.servers"), topics.EVENTS, login)
    with reading(topic) as opened:
        assert len(list(opened.records)) + opened.malformed == len(kafka.records())


def test_the_login_of_a_stolen_gateway_is_denied_on_its_open_connection_then_refused(
    secured: SecuredBroker,
) -> None:
    secured.create(one for one in rights(topics.EVENTS, GROUP, STOLEN) if one.principal == f"User:{STOLEN}")
    producer = Producer(secured.login(STOLEN))
    errors: list[KafkaError | None] = []

    def send() -> None:
        producer.produce(topics.EVENTS, b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(SECONDS_MAX)

    send()
    secured.create(denial(STOLEN))
    send()
    assert [error and error.name() for error in errors] == [None, "TOPIC_AUTHORIZATION_FAILED"]
    for attempt in (commit_to(f"oncegate-outbox-{STOLEN}"), take_id(STOLEN)):
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            attempt(secured.login(STOLEN))
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        send()  # the client knows it by now
    secured.remove(STOLEN)
    refused: list[KafkaError] = []
    client = Producer({**secured.login(STOLEN), "error_cb": refused.append, "log_level": 0})

    def is_refused() -> bool:
        client.poll(0)
        return any(error.name() == "_AUTHENTICATION" for error in refused)

    wait_until(is_refused, "a new connection is refused")


def allowed(kind: ResourceType, name: str, what: AclOperation, *, prefixed: bool = False) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{GATEWAY}", "*", what, AclPermissionType.ALLOW)


EXCESS = {
    "Read on the job's group": (allowed(ResourceType.GROUP, GROUP, AclOperation.READ), f"group {GROUP}"),
    "Delete on the job's group": (allowed(ResourceType.GROUP, GROUP, AclOperation.DELETE), f"group {GROUP}"),
    "another gateway's group": (
        allowed(ResourceType.GROUP, f"oncegate-outbox-{STRANGER}", AclOperation.READ),
        f"oncegate-outbox-{STRANGER}",
    ),
    "groups by a prefix": (
        allowed(ResourceType.GROUP, f"oncegate-outbox-{GATEWAY}", AclOperation.READ, prefixed=True),
        f"oncegate-outbox-{GATEWAY}*",
    ),
    "transactional ids by a prefix": (
        allowed(ResourceType.TRANSACTIONAL_ID, GATEWAY, AclOperation.WRITE, prefixed=True),
        "transactional ids of other gateways",
    ),
    "all transactional ids": (
        allowed(ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE),
        "transactional ids of other gateways",
    ),
    "another topic": (allowed(ResourceType.TOPIC, OTHER_TOPIC, AclOperation.WRITE), OTHER_TOPIC),
    "Delete on the topic": (allowed(ResourceType.TOPIC, topics.EVENTS, AclOperation.DELETE), "DELETE"),
    "everything": (allowed(ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER), EVERYTHING),
}


@pytest.mark.parametrize("what", EXCESS)
def test_doctor_warns_of_a_right_that_should_not_be_there(secured: SecuredBroker, kafka: KafkaTopic, what: str) -> None:
    binding, told = EXCESS[what]
    kafka.commit(0, "", group=f"oncegate-outbox-{STRANGER}")  # it is there: gw-2 has sent
    assert conspicuous(secured) == []
    secured.create([binding])
    try:
        (warned,) = conspicuous(secured)
    finally:
        secured.revoke(binding)
    assert told in warned
