"""Kafka and the receipts, on a real broker with wrong topics and groups, and on one that grants few rights."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclOperation,
    AdminClient,
    NewTopic,
)

from agent.cli.doctor import receipts, rights
from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.kafka import (
    KafkaConnection,
    check_broker,
    check_oversized,
    check_rights,
    check_settings,
    check_stopped,
    check_topic,
)
from agent.cli.doctor.rights import EVERYTHING, check_excess
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.kafka.client import MOVING_CODES
from agent.forward.kafka.topic import create_command
from agent.forward.receipts.rules import PartitionView, View
from agent.status import GatewayStatus
from agent.store.counts import EventCounts
from contract import topics
from contract.receipt import Receipt
from simulators.services.kafka.broker import Broker
from tests.agent.cli.running import Completed, here
from tests.agent.forward.broker import KafkaTopic, new_topic
from tests.agent.store.stores import make_store
from tests.support.agent_process import configured
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SETTINGS = KafkaSettings("kafka-1:9092", "t")
FORMER = Receipt("former", 0, "nDCRGbaQT4C6Yy0VbBGzCg")
"""A receipt of another topic, as of one that was deleted."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def await_topic(broker: Broker, topic: str) -> None:
    """Wait until the broker has the topic's metadata: its controller answers earlier."""
    wait_until(lambda: KafkaTopic(broker.bootstrap_servers, topic).topic_id() is not None, "the broker has the topic")


def examine(broker: Broker, topic: str) -> list[Finding]:
    connection = KafkaConnection.open(KafkaSettings(broker.bootstrap_servers, topic))
    finding, description = check_broker(connection)
    if description is None:
        return [finding]
    return [finding, *check_rights(description), *check_topic(connection, description)]


@pytest.mark.heavy
@pytest.mark.guarantee(4)
def test_each_setting_that_is_not_the_promises_is_named_with_the_command_that_changes_it(broker: Broker) -> None:
    wrong = {
        "message.timestamp.type": "CreateTime",
        "cleanup.policy": "compact",
        "retention.ms": "3600000",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
        "max.message.bytes": "10000",
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("wrong", 3, 1, config=wrong)])["wrong"].result(60)
    await_topic(broker, "wrong")
    findings = examine(broker, "wrong")
    facts = {finding.text.split(" = ")[0]: finding for finding in findings if " = " in finding.text}
    for name in topics.settings(1):
        if name != "min.insync.replicas":  # one replica cannot have two in sync
            assert facts[name].condition is Condition.WRONG
            assert f"--add-config {name}=" in facts[name].hint
    assert facts["max.message.bytes"].condition is Condition.WARNING
    assert any("3 partitions, 1 replicas" in finding.text for finding in findings)


def test_a_topic_as_it_should_be_is_fine_but_for_its_replicas(broker: Broker) -> None:
    broker.create_topics("right")
    await_topic(broker, "right")
    unlike = [finding for finding in examine(broker, "right") if finding.condition is not Condition.FINE]
    assert [(finding.condition, "replica" in finding.text) for finding in unlike] == [(Condition.WARNING, True)]


@pytest.mark.guarantee(4)
def test_where_brokers_have_no_acls_doctor_warns_that_every_client_could_give_receipts(broker: Broker) -> None:
    broker.create_topics("open")
    await_topic(broker, "open")
    connection = KafkaConnection.open(KafkaSettings(broker.bootstrap_servers, "open"))
    _, topic = check_broker(connection)
    assert topic is not None
    (finding,) = check_excess(connection, topic, "oncegate-cloud", "gw1", [])
    assert (finding.condition, finding.text) == (Condition.WARNING, EVERYTHING)
    assert "docs/kafka.md" in finding.hint


def test_settings_above_the_needed_are_enough() -> None:
    more = {**topics.settings(), "retention.ms": "-1", "min.insync.replicas": "3"}
    assert {finding.condition for finding in check_settings(SETTINGS, more, 3)} == {Condition.FINE}


def test_a_topic_that_is_missing_comes_with_the_command_that_creates_it(broker: Broker) -> None:
    (finding,) = examine(broker, "nowhere")
    assert finding.condition is Condition.WRONG
    assert "--create --topic nowhere --partitions 12 --replication-factor 1" in finding.hint


@pytest.mark.parametrize("place", ["properties", "file"])
def test_a_command_for_a_listener_with_a_login_names_a_file_for_it(place: str, tmp_path: Path) -> None:
    file = tmp_path / "kafka"
    file.write_text("security.protocol = sasl_ssl\n")
    protected = replace(SETTINGS, properties={"security.protocol": "sasl_ssl"})
    if place == "file":
        protected = replace(SETTINGS, properties_file=file)
    wrong = {**topics.settings(), "retention.ms": "1"}
    for settings, login in ((SETTINGS, ""), (protected, " --command-config admin.properties")):
        (finding,) = [one for one in check_settings(settings, wrong, 3) if one.hint]
        for command in (create_command(settings), finding.hint):
            assert re.match(
                rf"kafka-(topics|configs)\.sh --bootstrap-server kafka-1:9092{login} --(create|alter) ", command
            )


@pytest.mark.heavy
def test_a_login_that_fails_is_told_with_the_place_of_the_password(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "kafka"
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "x",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    finding, _ = check_broker(KafkaConnection.open(KafkaSettings(broker.bootstrap_servers, "t", properties_file=file)))
    assert finding.hint == f"check address, firewall and kafka.properties_file ({file})"


def test_a_broker_that_does_not_answer_is_named_with_the_reason() -> None:
    finding, topic = check_broker(KafkaConnection.open(KafkaSettings("127.0.0.1:1", "t")))
    assert topic is None
    assert (finding.condition, "Connection refused" in finding.text) == (Condition.WRONG, True)


@pytest.fixture
def kafka(broker: Broker) -> KafkaTopic:
    return new_topic(broker.bootstrap_servers)


def judge(kafka: KafkaTopic, group: str, pinned: str | None = None, *, any_commit: bool = False) -> Finding:
    settings = ReceiptSettings(group=group, any_commit=any_commit)
    view = receipts.read_group(KafkaConnection.open(kafka.settings()), settings, 4)
    return receipts.judge_receipts(view, settings, pinned)


def test_the_leader_epoch_beside_an_offset_is_seen(kafka: KafkaTopic) -> None:
    kafka.commit(0, kafka.receipt(), group="with")
    kafka.commit(0, kafka.receipt(), group="without", leader_epochs={})
    for group, epoch in (("with", 0), ("without", None)):
        view = receipts.read_group(KafkaConnection.open(kafka.settings()), ReceiptSettings(group=group), 4)
        assert {partition.committed_epoch for partition in view.partitions.values()} == {epoch}
    assert judge(kafka, "with").condition is Condition.FINE
    without = judge(kafka, "without")
    assert (without.condition, "has no leader epoch" in without.text) == (Condition.WRONG, True)


def test_receipts_are_judged_by_whose_they_are(kafka: KafkaTopic) -> None:
    silent = judge(kafka, "silent")
    kafka.commit(0, "", group="foreign")
    kafka.commit(0, kafka.receipt(), group="ours")
    assert (silent.condition, "nothing yet" in silent.text) == (Condition.WARNING, True)
    foreign = judge(kafka, "foreign")
    assert (foreign.condition, "foreign consumer" in foreign.text) == (Condition.WRONG, True)
    assert judge(kafka, "foreign", any_commit=True).condition is Condition.FINE
    assert judge(kafka, "ours", "table-1").condition is judge(kafka, "ours").condition is Condition.FINE
    other = judge(kafka, "ours", "table-0")
    assert (other.condition, "--repin" in other.hint) == (Condition.WRONG, True)
    for group, offset, metadata, reason in (
        ("former", 0, str(FORMER), f"of topic {FORMER.topic_id}, not of"),
        ("beyond", 1, kafka.receipt(), "beyond the log's end"),
        ("above", 0, kafka.receipt(first=1), "begins above the group's own offset"),
    ):
        kafka.commit(offset, metadata, group=group)
        held = judge(kafka, group, "table-1")
        assert (held.condition, reason in held.text) == (Condition.WRONG, True), held


def test_what_receipts_lack_are_offsets_of_which_the_marker_of_a_transaction_has_one() -> None:
    view = View(FORMER.topic_id, {0: PartitionView(7, FORMER, 8, 2, 2)})
    assert receipts.judge_receipts(view, ReceiptSettings(), None).text.endswith(", 1 offset behind")


@pytest.mark.guarantee(4)
def test_doctor_repins_by_hand_and_never_beside_the_agent(kafka: KafkaTopic, tmp_path: Path) -> None:
    file = configured(tmp_path, f'topic = "{kafka.topic}"\n', kafka=kafka.bootstrap_servers)

    def doctor(*arguments: str) -> Completed:
        return here("doctor", "--config", str(file), *arguments)

    async def pin(table: str) -> None:
        async with make_store(tmp_path / "state") as store:
            await asyncio.to_thread(store.outbox.set_fact, "receipts.table", table)

    async def repin_beside_the_agent() -> Completed:
        async with make_store(tmp_path / "state"):
            return await asyncio.to_thread(doctor, "--repin")

    asyncio.run(pin("old"))
    nothing = doctor("--repin")
    assert (nothing.returncode, "no receipt" in nothing.stderr) == (1, True)
    kafka.commit(0, str(FORMER))
    former = doctor("--repin")
    assert (former.returncode, f"of topic {FORMER.topic_id}, not of" in former.stderr) == (1, True)
    kafka.commit(0, kafka.receipt("new"))
    before = doctor("--json")
    findings = [json.loads(line) for line in before.stdout.splitlines()]
    assert before.returncode == 1
    assert [finding["check"] for finding in findings if finding["condition"] == "wrong"] == ["group"]
    beside = asyncio.run(repin_beside_the_agent())
    assert (beside.returncode, "systemctl stop oncegate" in beside.stderr) == (1, True)
    assert doctor("--repin").stdout == "pinned new instead of old\n"
    after = doctor()
    assert (after.returncode, "receipts of table new" in after.stdout) == (0, True), after.stdout


STATUS = GatewayStatus("gw", 1, 0, 0, EventCounts(0, 1, 0), 0, None, 0, 0, 0, None, 0, None)


def test_what_the_status_says_of_the_forwarding_is_told() -> None:
    for status in (None, STATUS):
        assert [*check_stopped(status), *check_oversized(SETTINGS, status)] == []
    (stopped,) = check_stopped(replace(STATUS, forwarding_stopped="lane alarms: fenced"))
    assert (stopped.condition, stopped.text) == (Condition.WRONG, "stopped: lane alarms: fenced")
    assert receipts.check_outstanding(STATUS, 1).condition is Condition.FINE
    held = receipts.check_outstanding(replace(STATUS, receipts_held="why"), 1)
    assert (held.condition, "held: why" in held.text) == (Condition.WARNING, True)
    (refused,) = check_oversized(SETTINGS, replace(STATUS, oversized=3, oversized_bytes=2_000_000))
    assert (refused.condition, "3 events refused" in refused.text) == (Condition.WRONG, True)
    assert "--entity-name t --add-config max.message.bytes=4000000" in refused.hint
    assert "message.max.bytes in kafka.properties" in refused.hint


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("code", sorted(MOVING_CODES))
def test_a_groups_coordinator_that_is_being_elected_is_asked_again_for_a_while_and_no_right_is_named(
    monkeypatch: pytest.MonkeyPatch, code: int, *, ends: bool
) -> None:
    errors = iter([KafkaError(code), KafkaError(code)])

    def answer(*_: object) -> SimpleNamespace:
        if error := next(errors, None if ends else KafkaError(code)):
            raise KafkaException(error)
        return SimpleNamespace(authorized_operations={AclOperation.READ})

    monkeypatch.setattr(rights, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr("agent.forward.kafka.client.OPENING_SECONDS_MAX", 60.0 if ends else 0.01)
    monkeypatch.setattr("agent.forward.kafka.client.wait_for", answer)
    finding = rights._refusal_of_group(KafkaConnection.open(KafkaSettings("127.0.0.1:1")), "gw1")
    assert (finding is None) == ends
    assert finding is None or ("not checked" in finding.text and not finding.hint)
