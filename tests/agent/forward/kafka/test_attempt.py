"""Calls that may never return."""

import gc
import threading
import weakref

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


def test_what_a_failing_call_has_opened_is_released_with_its_error() -> None:
    class Client:
        pass

    opened: list[weakref.ref[Client]] = []

    def fail() -> None:
        client = Client()
        opened.append(weakref.ref(client))
        raise KeyError(str(client))

    gc.disable()  # without the collector, which comes after many more allocations
    try:
        with pytest.raises(KeyError) as raised:
            attempt(fail, 60, threading.Event(), "a call")
        del raised
        assert [client() for client in opened] == [None]
    finally:
        gc.enable()
