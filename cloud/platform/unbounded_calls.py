"""Calls of librdkafka that have no time limit of their own, and during which Python runs no signal handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from cloud.errors import KafkaError

_Answer = TypeVar("_Answer")


def within(seconds: float, call: Callable[[], _Answer], what: str) -> _Answer:
    """Call, and return the answer or raise what the call raised; raise KafkaError where it takes too long.

    A commit waits for ever for a broker that is connected and does not answer (librdkafka issue 3740). The thread of
    such a call is left behind.
    """
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised below, in the thread that asked
            answer.set_exception(error)

    threading.Thread(target=run, name="kafka-call", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise KafkaError(f"{what}: no answer within {seconds:g} s") from None
