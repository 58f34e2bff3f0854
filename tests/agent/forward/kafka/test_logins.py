"""The agent's producer, admin client and consumer log in by the recipes of docs/kafka-logins.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.kafka import check_rights
from agent.config.settings import KafkaSettings
from tests.agent.forward.broker import GROUP, KafkaTopic
from tests.agent.forward.checks import assert_nothing_lost, assert_sent_and_receipted, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.docs.recipes import LOGINS, install_agent
from tests.support.logins.secured_broker import SecuredBroker, secured_broker
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

EVENTS = 100


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def kafka(secured: SecuredBroker) -> KafkaTopic:
    side = KafkaTopic(secured.broker.bootstrap_servers, f"logins.{uuid4().hex}")
    side.create_topic()
    secured.grant(side.topic, GROUP)
    return side


def installed(
    login: str, secured: SecuredBroker, kafka: KafkaTopic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> KafkaSettings:
    """Return the settings of a recipe, for the topic."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder / "credentials"))
    return replace(install_agent(login, secured, folder), topic=kafka.topic)


def replace_file(file: Path, text: str) -> None:
    renewed = file.with_suffix(".new")
    renewed.write_text(text)
    renewed.replace(file)


@pytest.mark.parametrize("login", LOGINS)
def test_the_agents_clients_log_in_by_the_recipe(
    secured: SecuredBroker, kafka: KafkaTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    _, topic = assert_sent_and_receipted(kafka, installed(login, secured, kafka, tmp_path, monkeypatch))
    assert [right.condition for right in check_rights(topic)] == [Condition.FINE]


@pytest.mark.parametrize(("login", "secret"), [(LOGINS[0], "sasl.password"), (LOGINS[2], "client.secret")])
def test_a_wrong_secret_is_reported_and_a_corrected_file_is_used_without_a_restart(
    secured: SecuredBroker,
    kafka: KafkaTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    login: str,
    secret: str,
) -> None:
    settings = installed(login, secured, kafka, tmp_path, monkeypatch)
    file = settings.properties_file
    assert file is not None
    right = file.read_text()
    assert secret in right
    replace_file(file, right.rstrip() + "-wrong\n")
    outbox = MemoryOutbox()
    outbox.append(*readings(EVENTS))

    with forwarding(settings, outbox):
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == EVENTS
        replace_file(file, right)
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)
    assert "-wrong" not in caplog.text
