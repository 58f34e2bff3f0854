"""The clock of the store's tests, which stands still unless it is turned."""

import pytest

from tests.agent.store.stores import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
