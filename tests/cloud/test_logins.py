"""The job and the audit log in to Kafka by the recipes of docs/kafka-logins.md."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]  # its __all__ lacks it
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from cloud.auditing.topic import Topic
from cloud.errors import KafkaError
from cloud.settings import KafkaSettings
from cloud.stream.kafka_admin import KafkaAdmin
from simulators.services.postgres import Postgres
from simulators.services.process import Command, Process
from tests.cloud.cli.test_command_line import PROGRAM
from tests.cloud.gateway import Gateway, readings
from tests.cloud.plain_consumer.consuming import ConsumerSide
from tests.cloud.running import PARTITIONS, CloudSide
from tests.docs.recipes import LOGINS, install_cloud
from tests.docs.rights import rights
from tests.support.logins.secured_broker import AUDIT, CLOUD, PASSWORDS, SecuredBroker, secured_broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.heavy]


LATEST = -1
"""Spark's name for the end of a partition."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def cloud(secured: SecuredBroker, tmp_path: Path) -> Iterator[CloudSide]:
    """Yield a topic, on which the user of the cloud has its rights, and a table; end all programs."""
    topic = f"logins.{uuid4().hex}"
    secured.broker.create_topics(topic, partitions=PARTITIONS)
    side = CloudSide(secured.broker.bootstrap_servers, topic, tmp_path)
    secured.grant(topic, side.group)
    yield side
    side.close()


def start(cloud: CloudSide, name: str, address: str, *options: str) -> Process:
    ends = ("--bootstrap-servers", address, "--topic", cloud.topic, "--group", cloud.group)
    login = ("--kafka-properties", "credential:kafka")
    words = (str(PROGRAM), name, *ends, *login, *cloud.sink_options(), *options)
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(cloud.folder / "credentials")}
    process = Process(Command(name, words, cloud.folder / f"{name}.log", cloud.folder, environment))
    process.start()
    cloud.jobs.append(process)
    return process


@pytest.mark.parametrize("login", LOGINS)
def test_job_and_audit_log_in_by_the_recipe(secured: SecuredBroker, cloud: CloudSide, login: str) -> None:
    options = install_cloud(login, secured, cloud.folder)
    address = secured.tls if login == "Client certificates" else secured.sasl
    cloud.send(Gateway().records(readings(30)))

    start(cloud, "job", address, *options, "--checkpoint", cloud.place("checkpoint"))
    cloud.wait_for_receipts(30)
    assert cloud.stop() == 0
    assert cloud.ids() == [str(number) for number in range(30)]

    if login == LOGINS[0]:  # the audit has a login of its own, with fewer rights
        file = cloud.folder / "credentials" / "secret_kafka"
        mine, its = ((f'username="{user}"', PASSWORDS[user]) for user in (CLOUD, AUDIT))
        file.write_text(file.read_text().replace(mine[0], its[0]).replace(mine[1], its[1]))
    audit = start(cloud, "audit", address, *options, "--output", str(cloud.folder / "audit"))
    assert cloud.wait_for_end(audit) == 0, audit.log()
    for log in (job.log() for job in cloud.jobs):
        assert PASSWORDS[CLOUD] not in log


def test_a_wrong_password_ends_the_job_with_the_reason(secured: SecuredBroker, cloud: CloudSide) -> None:
    install_cloud(LOGINS[0], secured, cloud.folder)
    file = cloud.folder / "credentials" / "secret_kafka"
    file.write_text(file.read_text().replace(PASSWORDS[CLOUD], "wrong-password"))
    job = start(cloud, "job", secured.sasl, "--checkpoint", cloud.place("checkpoint"))
    assert cloud.wait_for_end(job) == 1
    assert "SaslAuthenticationException" in job.log()
    assert "wrong-password" not in job.log()


def job_asks(spark: SparkSession, cloud: CloudSide, login: dict[str, str]) -> None:
    settings = KafkaSettings(login.pop("bootstrap.servers"), cloud.topic, cloud.group, 1_000, login)
    admin = KafkaAdmin(spark, settings)
    assert not admin.is_compacted(), "without the right to know it"
    admin.commit(cloud.group, dict.fromkeys(admin.offset_ranges(), 0), dict.fromkeys(range(PARTITIONS), ""), {})


def audit_asks(spark: SparkSession, cloud: CloudSide, login: dict[str, str]) -> None:
    topic = Topic(spark, login.pop("bootstrap.servers"), cloud.topic, login)
    try:
        topic.committed(cloud.group)
        assert topic.load(topic.earliest(), dict.fromkeys(range(PARTITIONS), LATEST)).count() == 5
    finally:
        topic.close()


@pytest.mark.parametrize(("user", "ask"), [(CLOUD, job_asks), (AUDIT, audit_asks)])
def test_without_one_of_their_rights_job_and_audit_are_refused(
    secured: SecuredBroker,
    cloud: CloudSide,
    spark: SparkSession,
    user: str,
    ask: Callable[[SparkSession, CloudSide, dict[str, str]], None],
) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = {
        "bootstrap.servers": secured.sasl,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{user}" password="{PASSWORDS[user]}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.file),
    }
    cloud.send(Gateway().records(readings(5)))
    ask(spark, cloud, {**login})
    own = [one for one in rights(cloud.topic, cloud.group) if one.principal == f"User:{user}"]
    assert len(own) == 2
    for missing in own:
        secured.revoke(missing)
        refusal = f"{ResourceType(missing.restype).name.capitalize()}AuthorizationException"
        with pytest.raises((KafkaError, Py4JJavaError), match=refusal):
            ask(spark, cloud, {**login})
        secured.create([missing])


def test_the_consumer_needs_its_two_rights_alone(secured: SecuredBroker, postgres: Postgres, tmp_path: Path) -> None:
    side = ConsumerSide(secured.broker, postgres, tmp_path, f"consumer{uuid4().hex}")
    side.bootstrap_servers = secured.sasl
    properties = tmp_path / "kafka.properties"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{name}={value}\n" for name, value in secured.login(CLOUD).items()))
    own = [one for one in rights(side.name, side.name) if one.principal == f"User:{CLOUD}"]
    secured.create(own)
    options = ("--kafka-properties", str(properties))
    try:
        for missing in own:
            secured.revoke(missing)
            side.start(*options)
            side.wait("authorization failed")
            side.members[-1].kill()
            secured.create([missing])
        side.send(Gateway().records(readings(5)))
        side.start(*options)
        side.wait_for_rows(5)
        side.wait("stage=receipt")
        assert side.members[-1].terminate() == 0
    finally:
        for member in side.members:
            member.kill()
