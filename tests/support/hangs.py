"""A pytest plugin: a test that hangs fails under its name, even where the timeout's error is swallowed.

pytest-timeout raises the error once, in the running code. asyncio logs errors of callbacks and continues: the test then
passed or hung without end. Hypothesis treats it as a failing example, and repeats that and simpler ones, each of which
hangs again. And after a hang one cleanup after another may hang, too (decision 61).
"""

import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import Protocol

import pytest
from hypothesis import is_hypothesis_test

CLEANUP_SECONDS_MAX = 120.0
"""Time limit of the first cleanup after a timeout, unless the test's own limit is lower."""
CLEANUPS_SHARE = 0.1
"""Share of that limit for each further cleanup."""

_TIMED_OUT = pytest.StashKey[str]()
_RUNS = pytest.StashKey[bool]()
"""Whether code of the test or of its fixtures runs."""


class HungExampleError(BaseException):
    """Timeout of a property test, which Hypothesis does not treat as a failing example."""


class TimeoutSettings(Protocol):
    """The fields of pytest-timeout's settings that the plugin uses."""

    @property
    def timeout(self) -> float:
        """The time limit of the test in seconds."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: TimeoutSettings) -> Generator[None, object, object]:
    """Record the timeout, and raise the error again at the timeout of each cleanup."""
    done = yield
    raising = signal.getsignal(signal.SIGALRM)
    if callable(raising):
        cleanup_seconds = min(settings.timeout, CLEANUP_SECONDS_MAX)

        def note(number: int, frame: FrameType | None) -> None:
            again_seconds = cleanup_seconds * (CLEANUPS_SHARE if _TIMED_OUT in item.stash else 1)
            signal.setitimer(signal.ITIMER_REAL, again_seconds)
            item.stash[_TIMED_OUT] = f"Timeout (>{settings.timeout}s), and the error was taken"
            if item.stash.get(_RUNS, False):  # otherwise pytest itself may be writing a report
                _raise(item, lambda: raising(number, frame))

        signal.signal(signal.SIGALRM, note)
        signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return done


def _raise(item: pytest.Item, raising: Callable[[], object]) -> None:
    try:
        raising()
    except pytest.fail.Exception as failed:
        if is_hypothesis_test(getattr(item, "obj", None)):
            raise HungExampleError(str(failed)) from None
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Allow the timeout to raise its error during this phase."""
    item.stash[_RUNS] = True
    try:
        return (yield)
    finally:
        item.stash[_RUNS] = False


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a phase that passed in spite of a timeout."""
    report = yield
    timed_out = item.stash.get(_TIMED_OUT, None)
    if timed_out is not None:
        del item.stash[_TIMED_OUT]
        if report.passed:
            report.outcome = "failed"
            report.longrepr = timed_out
    return report
