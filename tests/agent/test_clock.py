"""The machine's clocks, of which only the wall clock steps; what follows is tested with clocks that a test sets."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.steppable_clock import SteppableClock

PROGRAM = """
import sys
from agent.clock import SystemClock
for _ in sys.stdin:
    clock = SystemClock()
    print(clock.wall_ms(), clock.monotonic_ms(), clock.uptime_ms(), clock.boot(), clock.trust().value, flush=True)
"""
DAY = 86_400
STEPS = [(0, True), (-14 * DAY, False), (365 * DAY, True), (60 - int(time.time()), False), (0, True)]
"""The offset of the wall clock in seconds, one of them to 1970, and what the kernel reports of its synchronisation."""
MS_MAX = 300_000
"""More than all of it takes, less than any step."""


@pytest.mark.guarantee(2, 5)
def test_a_step_of_the_wall_clock_moves_no_other_and_its_trust_is_the_kernels(tmp_path: Path) -> None:
    stepped, begun = SteppableClock(tmp_path), time.time()
    boots, running = set[str](), [(time.monotonic_ns() // 10**6, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=stepped.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seconds, synchronised in STEPS:
            stepped.set(seconds)
            stepped.report(synchronised=synchronised)
            print(file=process.stdin, flush=True)
            wall, monotonic, uptime, boot, trust = process.stdout.readline().split()
            assert 0 <= int(wall) - int((begun + seconds) * 1000) < MS_MAX
            assert trust == ("trusted" if synchronised else "untrusted")
            boots.add(boot)
            running.append((int(monotonic), int(uptime)))
        process.stdin.close()
    assert len(boots) == 1
    assert all(column == sorted(column) for column in map(list, zip(*running, strict=True)))
    assert all(last - first < MS_MAX for first, last in zip(running[0], running[-1], strict=True))
