"""A broker, a publisher, and a recorder of messages for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.mosquitto import Mosquitto
from tests.agent.mqtt.gateway import Recorder
from tests.agent.mqtt.publisher import Publisher


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as running:
        yield running


@pytest.fixture
def publisher(broker: Mosquitto) -> Iterator[Publisher]:
    with Publisher(broker.port) as running:
        yield running
