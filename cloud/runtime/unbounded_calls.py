"""A time limit for calls of librdkafka that have none, and during which Python runs no signal handler."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from cloud.errors import JobError, KafkaError

_Answer = TypeVar("_Answer")


def within(seconds: float, call: Callable[[], _Answer], what: str, error_after: type[JobError] = KafkaError) -> _Answer:
    """Run a call in a thread, and return its result or raise its exception; raise `error_after` after `seconds`.

    A commit waits without limit for a connected broker that does not answer (librdkafka issue 3740). The thread of
    such a call is abandoned.
    """
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=run, name="unbounded-call", daemon=True).start()
    if not wait([answer], seconds).done:  # a TimeoutError of the call is an answer
        raise error_after(f"{what}: no answer within {seconds:g} s")
    return answer.result()
