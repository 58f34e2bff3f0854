"""A wait for a count fails if the count does not change, not if it is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.error import ServiceError
from simulators.services.process import Command, Process
from tests.support.waiting import (
    Clock,
    Progress,
    log_bytes,
    until,
    until_count,
    wait_for_count,
    wait_for_end,
    wait_for_work,
    wait_until,
)


class HandDrivenClock:
    """A clock that advances only during sleeps, and a count that grows at a fixed interval."""

    def __init__(self, seconds_a_step: float, last: int) -> None:
        self.seconds = 0.0
        self._seconds_a_step = seconds_a_step
        self._last = last

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self._sleep)

    def count(self) -> int:
        return min(self._last, int(self.seconds / self._seconds_a_step))

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_count_that_stops_short_fails_with_its_number() -> None:
    driven = HandDrivenClock(0.01, last=1_999)
    with pytest.raises(AssertionError, match="stuck at 1999 of 2000: all are stored"):
        wait_for_count(driven.count, 2_000, "all are stored", clock=driven.clock())
    assert 60 < driven.seconds - 19.99 < 61


def test_a_count_that_moves_slowly_may_take_longer_than_any_standstill() -> None:
    driven = HandDrivenClock(50, last=20)
    wait_for_count(driven.count, 20, "all are stored", standstill_seconds=60, clock=driven.clock())
    assert driven.seconds > 900


def test_a_count_down_that_stops_fails_with_what_is_left() -> None:
    driven = HandDrivenClock(0.01, last=7)
    with pytest.raises(AssertionError, match="stuck at 3 left: all is forwarded"):
        wait_for_count(lambda: 10 - driven.count(), 0, "all is forwarded", clock=driven.clock())


def test_a_count_beyond_its_goal_fails_at_once_unless_more_is_fine() -> None:
    with pytest.raises(AssertionError, match="too many, 11 of 10: all are stored"):
        wait_for_count(lambda: 11, 10, "all are stored")
    wait_for_count(lambda: 11, 10, "at least ten are stored", or_more=True)


async def test_on_a_loop_it_is_the_same() -> None:
    with pytest.raises(AssertionError, match="stuck at 2 of 3: deliveries"):
        await until_count(lambda: 2, 3, "deliveries", standstill_seconds=0.05)
    await until_count(lambda: 4, 3, "deliveries", or_more=True)
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: dawn"):
        await until(lambda: False, "dawn", 0.05)


def test_a_condition_that_never_holds_fails_with_what_was_awaited() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: dawn"):
        wait_until(lambda: False, "dawn", 0.05)


def test_a_count_may_stand_still_as_long_as_its_process_works() -> None:
    progress = Progress(10, "rows", standstill_seconds=60)
    assert not any(progress.reached(3, now=50.0 * turn, work=turn) for turn in range(20))
    with pytest.raises(AssertionError, match="stuck at 3 of 10: rows"):
        progress.reached(3, now=50.0 * 19 + 60, work=19)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Process]:
    with Process(Command("worker", ("sh", "-c", "echo at work; sleep 1000"), tmp_path / "log")) as process:
        process.wait_for_log("at work")
        yield process
        process.kill()


def test_a_process_that_stands_still_is_shown_with_its_log(worker: Process) -> None:
    with pytest.raises(AssertionError, match="stuck at 9 of 10: rows") as failure:
        wait_for_work(worker, lambda: 9, 10, "rows", 0.05)
    assert "at work" in failure.value.__notes__[0]


def test_a_process_that_has_ended_is_not_waited_for(worker: Process) -> None:
    worker.kill()
    with pytest.raises(ServiceError, match="ended with status -9 before rows"):
        wait_for_work(worker, lambda: 9, 10, "rows", 60)


def test_the_end_of_a_process_is_waited_for_as_long_as_it_works(worker: Process) -> None:
    with pytest.raises(AssertionError, match="stuck at 0 of 1: the process has ended") as failure:
        wait_for_end(worker, 0.05)
    assert "at work" in failure.value.__notes__[0]
    assert log_bytes(worker) == len("at work\n")
    worker.request_end()
    assert wait_for_end(worker, 60) == -15
