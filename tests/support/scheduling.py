"""Divides the tests among the processes of pytest-xdist: those of a folder that starts services stay together."""

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

GROUPS = ("cloud", "agent/forward", "end_to_end", "simulators", "packaging", "agent/store", "agent/mqtt")
"""Folders of tests/ that start a broker, a Spark session or another service once for all their tests.

In the order in which they are begun: the longest first.
"""


def group_of(test: str) -> str:
    """Return the folder, or else the file, whose tests run in one process."""
    return next((group for group in GROUPS if test.startswith(f"tests/{group}/")), test.partition("::")[0])


def place_of(test: str) -> int:
    """Return a number that sorts tests by the order of their groups."""
    group = group_of(test)
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist carries no types
    """Assigns whole groups to processes, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Return the scheduler, for any value of `--dist`."""
    return GroupScheduling(config, log)
