"""What holds for every test."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.collected import COLLECTED, describe

pytest_plugins = ["tests.support.hangs"]

HEAVY_SECONDS_MAX = 3_600
"""The time limit of a heavy test that names none itself."""
GROUPS = ("cloud", "agent/forward", "end_to_end", "simulators", "packaging", "agent/store", "agent/mqtt")
"""Folders whose tests run in one process, in the order in which processes begin with them; others go by file.

A broker or a Spark session is started once for its folder.
"""
_FOLDER = Path(__file__).parent

# No property depends on speed: a machine may be busy with something else. A failure prints how to repeat it.
settings.register_profile("oncegate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oncegate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what there is before any is deselected, form groups for xdist, and allow heavy tests their own time."""
    config.stash[COLLECTED] = describe(items)
    items.sort(key=_place)  # stable
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if item.get_closest_marker("heavy") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HEAVY_SECONDS_MAX))


def _group(item: pytest.Item) -> str:
    file = item.path.relative_to(_FOLDER).as_posix()
    return next((group for group in GROUPS if file.startswith(f"{group}/")), file)


def _place(item: pytest.Item) -> int:
    group = _group(item)
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)
