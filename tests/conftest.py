"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.compiled import pure_only
from tests.support.quick_start import QUICK_START
from tests.support.scheduling import place_of, pytest_xdist_make_scheduler

pytest_plugins = ["tests.support.hangs"]

__all__ = ["pytest_xdist_make_scheduler"]
HEAVY_SECONDS_MAX = 3_600
"""The time limit of a heavy test without one of its own."""

for name, value in QUICK_START.items():
    os.environ.setdefault(name, value)

# No property depends on speed: a machine may be busy. A failure prints how to repeat it.
settings.register_profile("oncegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oncegate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the groups, and set the time limit of heavy tests."""
    pure_only.deselect(config, items)
    items.sort(key=lambda item: place_of(item.nodeid))  # stable
    for item in items:
        if item.get_closest_marker("heavy") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HEAVY_SECONDS_MAX))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Start processes that react to SIGINT, which a shell without job control has its background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
