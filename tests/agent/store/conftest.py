"""A store with events in its file and in its log, of which tests damage copies."""

import pytest

from tests.agent.store.recovery.damaged import Original, make_original


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("damage"))
