"""Wait for conditions, never for time."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.01


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait until the condition holds; fail with what was awaited."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)
