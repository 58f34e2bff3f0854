"""Certificates that expire while a connection is open, and are renewed only after it was lost."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.kafka import KafkaConnection, check_broker
from agent.config.settings import KafkaSettings
from agent.telemetry.links import LinkName, Links
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic, new_topic
from tests.agent.forward.checks import assert_each_once, unsettled, wait_until_settled
from tests.agent.forward.events import readings
from tests.agent.forward.links import TcpLink
from tests.agent.forward.running import forwarding
from tests.support.logins.certificates import Authority
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

MODES = ("at-least-once", "exactly-once", "at-most-once")
EVENTS = 50
LONG_SECONDS, SHORT_SECONDS = 3_600, 20
"""The short one is sufficient for the start of a session on a busy machine."""
KEYSTORE = "listener.name.second.ssl.keystore.location"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that requires client certificates, the port of that listener, and that of the link to it."""
    listens, says = ports.free(2)
    properties = {
        "listener.name.second.ssl.keystore.type": "PEM",
        KEYSTORE: authority.issue("broker.pem", LONG_SECONDS)[0],
        "listener.name.second.ssl.truststore.type": "PEM",
        "listener.name.second.ssl.truststore.location": authority.file,
        "listener.name.second.ssl.client.auth": "required",
    }
    with Broker(tmp_path_factory.mktemp("secured"), Listener("SSL", listens, says, properties)) as broker:
        yield broker, listens, says


@pytest.fixture
def kafka(secured: tuple[Broker, int, int]) -> KafkaTopic:
    return new_topic(secured[0].bootstrap_servers)


def settings(kafka: KafkaTopic, port: int, mode: str, authority: Authority, own: Path) -> KafkaSettings:
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(own),
        "ssl.key.location": str(own),
    }
    if mode == "at-least-once":
        properties["message.timeout.ms"] = "3000"  # maximum duration of a session with old files
    return KafkaSettings(f"127.0.0.1:{port}", kafka.topic, mode, properties)


def append(outbox: MemoryOutbox) -> None:
    outbox.append(*readings(EVENTS, len(outbox.stored())))


def wait_until_logged(links: Links, settings: KafkaSettings) -> None:
    """Wait until the link's state names a certificate; `doctor` prints how to find the expired one."""

    def logged() -> bool:
        report = links.reports()[LinkName.KAFKA]
        return not report.state.up and "certificate" in report.reason

    wait_until(logged, "the link's state names the certificate")
    finding, topic = check_broker(KafkaConnection.open(settings))
    assert topic is None
    assert finding.condition is Condition.WRONG
    assert "certificate" in finding.text
    assert "-enddate" in finding.hint


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expires", ["ours", "the broker's"])
def test_an_expired_certificate_is_named_and_a_renewed_one_is_taken_without_a_restart(
    secured: tuple[Broker, int, int], authority: Authority, kafka: KafkaTopic, gateway: str, expires: str, mode: str
) -> None:
    _, listens, says = secured
    own, expiry = authority.issue("gateway.pem", SHORT_SECONDS if expires == "ours" else LONG_SECONDS)
    if expires != "ours":
        short, expiry = authority.issue("broker-short.pem", SHORT_SECONDS)
        kafka.configure_broker(KEYSTORE, str(short))
    chosen = settings(kafka, says, mode, authority, own)
    outbox = MemoryOutbox()

    with TcpLink(says, listens) as link, forwarding(chosen, outbox, gateway) as links:
        append(outbox)
        wait_until_settled(outbox)
        wait_until(lambda: datetime.now(UTC) > expiry, "it expires")
        append(outbox)
        wait_until_settled(outbox)  # over the same connection
        link.cut()
        append(outbox)
        wait_until_logged(links, chosen)
        assert unsettled(outbox) == EVENTS
        if expires == "ours":
            authority.issue("gateway.pem", LONG_SECONDS)
        else:
            kafka.configure_broker(KEYSTORE, str(authority.issue("broker-long.pem", LONG_SECONDS)[0]))
        wait_until_settled(outbox)

    assert_each_once(kafka, outbox)
