"""The CPU time of another process."""

from __future__ import annotations

import time

_SCHEDULED = 2
"""The kernel's CPUCLOCK_SCHED."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads in seconds, including ended ones and the kernel's work for them.

    It uses the process's CPU clock (clock_getcpuclockid(3)). The ticks of /proc/PID/stat are 10 ms long, and sampled,
    which overestimates threads that are woken by timers.
    """
    return time.clock_gettime(~pid << 3 | _SCHEDULED)
