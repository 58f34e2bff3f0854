"""What holds for every test."""

import pytest
from hypothesis import HealthCheck, settings

HEAVY_SECONDS_MAX = 3_600
"""The time limit of a heavy test that names none itself."""

# No property depends on speed: a machine may be busy with something else. A failure prints how to repeat it.
settings.register_profile("oncegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oncegate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow heavy tests their own time."""
    for item in items:
        if item.get_closest_marker("heavy") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HEAVY_SECONDS_MAX))
