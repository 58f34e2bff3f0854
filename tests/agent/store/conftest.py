"""The clock of the store's tests, which the test advances."""

import pytest

from tests.agent.store.stores import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
