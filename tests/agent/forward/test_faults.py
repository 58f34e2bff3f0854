"""Faults on the path to a real broker: a silent link, unknown clients, revoked rights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from agent.config.settings import KafkaSettings
from simulators.services import ports
from simulators.services.install import programs
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.settings import Listener
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import GATEWAY, forwarding
from tests.agent.forward.silent_link import SilentLink
from tests.support.disks.small_disk import fill, small_disk
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

USER, PASSWORD = "gateway-1", "correct-horse"
MODES = ("at-least-once", "exactly-once")


def side(broker: Broker, topic: str) -> KafkaTopic:
    kafka = KafkaTopic(broker.bootstrap_servers, f"{topic}.{uuid4().hex}")
    kafka.create_topic()
    return kafka


# A silent link


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that advertises the link's address."""
    listens, says = ports.free(2)
    with Broker(tmp_path_factory.mktemp("linked"), Listener("PLAINTEXT", listens, says)) as broker:
        yield broker, listens, says


@pytest.mark.parametrize("mode", MODES)
def test_a_link_that_falls_silent_is_noticed_and_nothing_is_lost_or_doubled(
    linked: tuple[Broker, int, int], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker, listens, says = linked
    kafka = side(broker, f"silent-{mode}")
    quick = {"socket.timeout.ms": "3000"}
    settings = KafkaSettings(f"127.0.0.1:{says}", kafka.topic, mode, quick)
    outbox = MemoryOutbox()
    outbox.append(*readings(500))

    with SilentLink(says, listens) as link, forwarding(settings, outbox, f"gw-{mode}"):
        wait_until_forwarded(outbox)
        link.fall_silent()
        outbox.append(*readings(500, 500))
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == 500
        link.speak_again()
        wait_until_forwarded(outbox)
        assert link.dropped > 0

    assert_nothing_lost(kafka, outbox)
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)


# TLS with client certificates, SASL/SCRAM, rights


def make_certificates(folder: Path) -> None:
    """Create an authority, and a certificate of it (PEM) for the broker and for the gateway."""

    def openssl(*arguments: str) -> None:
        subprocess.run([programs.require("openssl"), *arguments], cwd=folder, check=True, capture_output=True)

    subject = ("-subj", "/CN=authority")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", *subject)
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("broker", "gateway"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", "csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions")
        openssl("x509", "-req", "-in", "csr", "-out", f"{name}.pem", "-days", "2", *signing)
    (folder / "broker.both").write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Path, int]]:
    """Yield a broker with SASL_SSL beside its plain listener, whose users are super users."""
    folder = tmp_path_factory.mktemp("secured")
    make_certificates(folder)
    (port,) = ports.free(1)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.both",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.second.ssl.client.auth": "required",  # without its listener's name SASL_SSL ignores it
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.second.scram-sha-512.sasl.jaas.config": module,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(folder / "kafka", Listener("SASL_SSL", port, port, properties), scram={USER: PASSWORD}) as broker:
        yield broker, folder, port


def secure(folder: Path, **others: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "gateway.pem"),
        "ssl.key.location": str(folder / "gateway.key"),
        **others,
    }


def grant(broker: Broker, topic: str) -> None:
    """Grant the gateway the required rights."""
    change_acls(
        broker,
        (ResourceType.TOPIC, topic, AclOperation.WRITE),
        (ResourceType.TOPIC, topic, AclOperation.READ),
        (ResourceType.TOPIC, topic, AclOperation.DESCRIBE),
        (ResourceType.GROUP, f"oncegate-outbox-{GATEWAY}", AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, GATEWAY, AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, GATEWAY, AclOperation.DESCRIBE),
    )


def change_acls(broker: Broker, *rights: tuple[ResourceType, str, AclOperation]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    bindings = [AclBinding(kind, name, literal, f"User:{USER}", "*", what, allow) for kind, name, what in rights]
    for future in admin.create_acls(bindings).values():
        future.result(60)


def take_rights(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    every = AclBindingFilter(ResourceType.TOPIC, topic, literal, f"User:{USER}", "*", AclOperation.WRITE, allow)
    for future in admin.delete_acls([every]).values():
        future.result(60)


@pytest.mark.parametrize("mode", MODES)
def test_over_tls_with_a_client_certificate_and_scram_rights_that_are_lost_are_awaited(
    secured: tuple[Broker, Path, int], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker, folder, port = secured
    kafka = side(broker, f"secured-{mode}")
    grant(broker, kafka.topic)
    settings = KafkaSettings(f"127.0.0.1:{port}", kafka.topic, mode, secure(folder))
    outbox = MemoryOutbox()
    outbox.append(*readings(200))

    with forwarding(settings, outbox):
        wait_until_forwarded(outbox)
        take_rights(broker, kafka.topic)
        outbox.append(*readings(200, 200))
        wait_until(lambda: "uthorization failed" in caplog.text, "the state is logged")
        assert outbox.new == 200
        grant(broker, kafka.topic)
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": "wrong"},
        {"ssl.certificate.location": "", "ssl.key.location": ""},
        {"security.protocol": "PLAINTEXT"},
    ],
)
def test_who_cannot_show_who_he_is_sends_nothing_and_says_why(
    secured: tuple[Broker, Path, int], wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    broker, folder, port = secured
    kafka = side(broker, "stranger")
    grant(broker, kafka.topic)
    properties = {name: value for name, value in secure(folder, **wrong).items() if value}
    outbox = MemoryOutbox()
    outbox.append(*readings(5))

    with forwarding(KafkaSettings(f"127.0.0.1:{port}", kafka.topic, properties=properties), outbox):
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")

    assert outbox.new == 5
    assert kafka.records() == []


# A full disk


def test_a_broker_whose_disk_is_full_gets_everything_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(200))

    with small_disk(tmp_path / "kafka" / "data", 96) as disk, Broker(tmp_path / "kafka") as broker:
        kafka = side(broker, "full")
        with forwarding(kafka.settings(), outbox):
            wait_until_forwarded(outbox)
            filler = fill(disk)
            outbox.append(*readings(20_000, 200))
            wait_until(lambda: "kafka=unreachable" in caplog.text or "kafka=failing" in caplog.text, "it is logged")
            wait_until(lambda: not broker.process.alive, "a broker without a usable disk ends by itself")
            assert outbox.new > 0
            filler.unlink()
            broker.start()
            wait_until_forwarded(outbox)
        assert_nothing_lost(kafka, outbox)
