"""The login of Amazon MSK by IAM, with a signer of tests in place of Amazon's, against a real broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from uuid import uuid4

import pytest

from agent.cli.doctor.kafka import KafkaConnection
from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.msk_iam import with_login
from tests.agent.forward.broker import GROUP, KafkaTopic
from tests.agent.forward.checks import assert_sent_and_receipted
from tests.docs.rights import GATEWAY
from tests.support.logins.secured_broker import SecuredBroker, secured_broker

SIGNER = "aws_msk_iam_sasl_signer"
IAM = {"sasl.mechanism": "AWS_MSK_IAM", "aws.region": "eu-central-1"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


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
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    signer = Signer(secured)
    monkeypatch.setitem(sys.modules, SIGNER, ModuleType(SIGNER))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    kafka = KafkaTopic(secured.broker.bootstrap_servers, f"iam.{uuid4().hex}")
    kafka.create_topic()
    secured.grant(kafka.topic, GROUP)
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
