"""The agent's clients log in by the recipes of docs/kafka-logins.md, and as to Amazon MSK by a signer of tests."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.kafka import KafkaConnection, check_rights
from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.msk_iam import with_login
from tests.agent.forward.broker import GROUP, KafkaTopic, new_topic
from tests.agent.forward.checks import assert_nothing_lost, assert_sent_and_receipted, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.docs.recipes import LOGINS, install_agent
from tests.docs.rights import GATEWAY
from tests.support.logins.secured_broker import SecuredBroker, secured_broker
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

EVENTS = 100


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def kafka(secured: SecuredBroker) -> KafkaTopic:
    side = new_topic(secured.broker.bootstrap_servers)
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


@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("login", LOGINS)
def test_the_agents_clients_log_in_by_the_recipe(
    secured: SecuredBroker, kafka: KafkaTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    _, topic = assert_sent_and_receipted(kafka, installed(login, secured, kafka, tmp_path, monkeypatch))
    assert [right.condition for right in check_rights(topic)] == [Condition.FINE]


@pytest.mark.kafka
@pytest.mark.heavy
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
    outbox = MemoryOutbox(*readings(EVENTS))

    with forwarding(settings, outbox):
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == EVENTS
        replace_file(file, right)
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)
    assert "-wrong" not in caplog.text


SIGNER = "aws_msk_iam_sasl_signer"
IAM = {"sasl.mechanism": "AWS_MSK_IAM", "aws.region": "eu-central-1"}


class Signer(ModuleType):
    """Stands for Amazon's module: its function returns a token, and its expiry in milliseconds."""

    def __init__(self, secured: SecuredBroker) -> None:
        super().__init__(f"{SIGNER}.MSKAuthTokenProvider")
        self.regions: list[str] = []
        self._endpoint = secured.endpoint

    def generate_auth_token(self, region: str) -> tuple[str, int]:
        self.regions.append(region)
        token, expiry = self._endpoint.token(GATEWAY)
        return token, int(expiry * 1000)


@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_all_clients_of_each_mode_log_in_by_tokens_of_the_signer(
    secured: SecuredBroker, kafka: KafkaTopic, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    signer = Signer(secured)
    monkeypatch.setitem(sys.modules, SIGNER, ModuleType(SIGNER))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.folder / "ca.pem")}
    settings = KafkaSettings(secured.sasl, kafka.topic, delivery=mode, properties={**IAM, **tls})
    assert_sent_and_receipted(kafka, settings, GATEWAY)
    assert set(signer.regions) == {"eu-central-1"}


def test_without_the_signer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SIGNER, None)
    with pytest.raises(KafkaSettingsError, match="extra `aws`"):
        KafkaConnection.open(KafkaSettings("k:9098", properties=IAM))


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "needs aws.region"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "aws.region": "eu-central-1"}, "only for sasl.mechanism"),
    ],
)
def test_a_region_and_the_mechanism_require_each_other(properties: dict[str, str], told: str) -> None:
    with pytest.raises(KafkaSettingsError, match=told):
        with_login(properties)


def test_other_logins_are_left_alone() -> None:
    given = {"sasl.mechanism": "PLAIN", "sasl.username": "u"}
    assert with_login(given) == given
