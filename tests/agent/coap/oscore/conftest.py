"""The sensor's side of each test's credentials."""

from pathlib import Path

import pytest

from tests.agent.coap.oscore.protected import ProtectedSensor, sensor_folder


@pytest.fixture
def sensor(tmp_path: Path) -> ProtectedSensor:
    return ProtectedSensor(sensor_folder(tmp_path / "sensor"))


@pytest.fixture
def forgetful(tmp_path: Path) -> ProtectedSensor:
    """Return a sensor that sends an Echo value only after a 4.01."""
    return ProtectedSensor(sensor_folder(tmp_path / "sensor"), keeps_echo=False)
