"""What the kernel says of the CPU time, the memory and the writes of a process."""

import time
from pathlib import Path

_SCHEDULED = 2
"""The kernel's CPUCLOCK_SCHED."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads in seconds, including ended ones and the kernel's work for them.

    It uses the process's CPU clock (clock_getcpuclockid(3)). The ticks of /proc/PID/stat are 10 ms long, and sampled,
    which overestimates threads that are woken by timers.
    """
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory, including shared libraries."""
    return 1024 * _field(pid, "status", "VmRSS:")


def written_bytes(pid: int | str = "self") -> int:
    """Return the bytes that the process has caused to be written to disks (proc(5))."""
    return _field(pid, "io", "write_bytes:")


def _field(pid: int | str, file: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
