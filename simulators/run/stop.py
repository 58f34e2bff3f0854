"""The early end of a run, by a signal or by its caller."""

from __future__ import annotations

import asyncio
import signal

from simulators.display import Display


class Stop:
    """A request to end a run early, without new events and without waiting for outstanding ones."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()

    def __call__(self) -> None:
        """Request the end."""
        self.requested.set()


def stop_on_signals(display: Display) -> Stop:
    """Return a Stop that the first Ctrl-C requests; the second one and SIGTERM cancel the current task."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def interrupted() -> None:
        if stop.requested.is_set():
            task.cancel()
        else:
            display.fact("interrupted: judging the run so far; press again to end at once")
            stop()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return stop
