"""One real broker for all tests of this folder, and a topic for each."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic, LinkedTopic, new_topic
from tests.agent.forward.modes.answer_link import AnswerLink


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with Broker(folder) as running:
        yield running


@pytest.fixture
def kafka(broker: Broker) -> KafkaTopic:
    """Return a new topic on a running broker, also after a failed test."""
    if broker.process.alive:
        broker.resume()
    else:
        broker.start()
    return new_topic(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def linked_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, tuple[int, int]]]:
    """Yield a broker with a listener that clients reach by a link, and the two ends of that."""
    listens, says = ports.free(2)
    with Broker(tmp_path_factory.mktemp("linked"), Listener("PLAINTEXT", listens, says)) as broker:
        yield broker, (says, listens)


@pytest.fixture
def linked(linked_broker: tuple[Broker, tuple[int, int]]) -> LinkedTopic:
    """Return a new topic that is reached by a link, which the test opens."""
    broker, ends = linked_broker
    return LinkedTopic(broker.bootstrap_servers, ends)


@pytest.fixture
def link(linked: LinkedTopic) -> Iterator[AnswerLink]:
    with AnswerLink(*linked.link_ends) as link:
        yield link


@pytest.fixture
def gateway(kafka: KafkaTopic) -> str:
    """Return a gateway for this test only: its name is its transactional id."""
    return f"gw-{kafka.topic}"


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent")
