"""Faults on the path to a real broker: a silent link and a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agent.config.settings import KafkaSettings
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.agent.forward.silent_link import SilentLink
from tests.support.disks.small_disk import fill, small_disk
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

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
