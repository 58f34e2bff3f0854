"""A plugin for pytest: a test that hangs fails under its name, whoever takes the error that its time limit raises.

pytest-timeout raises it once, wherever the test is. asyncio takes whatever a callback raises, logs it and goes on: the
test then passed, or hung for ever. Hypothesis takes it for the failure of an example, and tries that and simpler ones
again: each hangs in turn. And of what hangs, one cleanup after another may hang, too.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import Protocol

import pytest
from hypothesis import is_hypothesis_test

CLEANUP_SECONDS_MAX = 120.0
"""How long the first cleanup of a test has once its time is over, unless the test has less."""
CLEANUPS_SHARE = 0.1
"""How much of that each cleanup after the first has."""

_TIMED_OUT = pytest.StashKey[str]()
_RUNS = pytest.StashKey[bool]()
"""Whether the test's own code runs, or that of its fixtures."""


class HungExampleError(BaseException):
    """The time of a property is over: an error that Hypothesis does not take for the failure of an example."""


class TimeoutSettings(Protocol):
    """The part of pytest-timeout's settings that matters here."""

    @property
    def timeout(self) -> float:
        """Seconds that a test has."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: TimeoutSettings) -> Generator[None, object, object]:
    """Note that the time is over, and raise the error again each time that of a cleanup is over, too."""
    done = yield
    raising = signal.getsignal(signal.SIGALRM)
    if callable(raising):
        cleanup_seconds = min(settings.timeout, CLEANUP_SECONDS_MAX)

        def note(number: int, frame: FrameType | None) -> None:
            again_seconds = cleanup_seconds * (CLEANUPS_SHARE if _TIMED_OUT in item.stash else 1)
            signal.setitimer(signal.ITIMER_REAL, again_seconds)
            item.stash[_TIMED_OUT] = f"Timeout (>{settings.timeout}s), and the error was taken"
            if item.stash.get(_RUNS, False):  # pytest itself may be at work on a report
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
    """Allow the time limit to raise its error."""
    return (yield from _running(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Allow the time limit to raise its error."""
    return (yield from _running(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Allow the time limit to raise its error."""
    return (yield from _running(item))


def _running(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_RUNS] = True
    try:
        return (yield)
    finally:
        item.stash[_RUNS] = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a phase whose time was over and that passed."""
    report = yield
    timed_out = item.stash.get(_TIMED_OUT, None)
    if timed_out is not None:
        del item.stash[_TIMED_OUT]
        if report.passed:
            report.outcome = "failed"
            report.longrepr = timed_out
    return report
