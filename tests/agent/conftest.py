"""The agent as a process, with the configuration of the tests that use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.process import Process
from tests.support.agent_process import agent_process


@pytest.fixture
def agent(configuration: Path) -> Iterator[Process]:
    with agent_process(configuration) as process:
        yield process
