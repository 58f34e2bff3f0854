"""Calls into the client with a deadline, since some may never return."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from confluent_kafka import Consumer

from agent.forward.errors import UnreachableError

STOP_SECONDS_MAX: Final = 4.0
"""How much longer a call may take once the agent stops."""
CLOSE_SECONDS_MAX: Final = 5.0
_WAIT_SECONDS: Final = 0.1

_Answer = TypeVar("_Answer")


def attempt(call: Callable[[], _Answer], seconds: float, stop: threading.Event, what: str) -> _Answer:
    """Call; return its answer or raise its error, UnreachableError where it takes too long.

    librdkafka's own time limits do not always hold: after a restart of the only broker some calls wait for a
    coordinator that no longer exists. The thread of such a call is abandoned, together with its client.
    """
    answers: list[_Answer] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="kafka-attempt", daemon=True).start()
    deadline = time.monotonic() + seconds
    while not done.wait(_WAIT_SECONDS):
        if stop.is_set():
            deadline = min(deadline, time.monotonic() + STOP_SECONDS_MAX)
            stop = threading.Event()
        if time.monotonic() > deadline:
            raise UnreachableError(f"{what}: no answer in time")
    if errors:
        raise errors.pop()  # else its traceback holds itself, and a client that the call has opened, for hours
    return answers[0]


def close(reader: Consumer, stop: threading.Event) -> None:
    """Close a client; abandon one that does not return."""
    with suppress(UnreachableError):
        attempt(reader.close, CLOSE_SECONDS_MAX, stop, "closing a client")
