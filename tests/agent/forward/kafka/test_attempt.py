"""Calls that may never return."""

import threading

import pytest

from agent.forward.errors import UnreachableError
from agent.forward.kafka.attempt import attempt


def test_an_answer_is_given_and_an_error_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    assert attempt(lambda: 7, 60, threading.Event(), "a call") == 7
    with pytest.raises(KeyError):
        attempt(fail, 60, threading.Event(), "a call")


def test_a_call_that_hangs_is_left_behind() -> None:
    never = threading.Event()

    with pytest.raises(UnreachableError, match="the call that hangs"):
        attempt(never.wait, 0.2, threading.Event(), "the call that hangs")

    never.set()


def test_a_call_that_hangs_does_not_keep_the_agent_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.forward.kafka.attempt.STOP_SECONDS_MAX", 0.2)
    never, stop = threading.Event(), threading.Event()
    stop.set()

    with pytest.raises(UnreachableError):
        attempt(never.wait, 3_600, stop, "a call")

    never.set()
