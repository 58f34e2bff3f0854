"""The agent as a process, a recorder of deliveries, and what tests of its store use: a clock, a disk that refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.process import Process
from tests.agent.recorder import Recorder
from tests.agent.store.stores import Faulty, HandClock
from tests.support.agent_process import agent_process


@pytest.fixture
def agent(configuration: Path) -> Iterator[Process]:
    with agent_process(configuration) as process:
        yield process


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()
