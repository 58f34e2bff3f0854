"""The job and the audit log in to Kafka by the recipes of docs/kafka-logins.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from simulators.services.process import Command, Process
from tests.cloud.cli.test_command_line import PROGRAM
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import PARTITIONS, CloudSide
from tests.docs.recipes import LOGINS, install_cloud
from tests.support.logins.secured_broker import CLOUD, PASSWORDS, SecuredBroker, secured_broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.heavy]


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
