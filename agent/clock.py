"""The gateway's clocks: what time it is, how long it has been, and whether the kernel vouches for the former."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Protocol

from contract.record import ClockTrust

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TRUST_SECONDS = 1.0
"""How long an answer of the kernel about its synchronisation is taken for granted."""
_TIMEX_BYTES = 256
"""At least sizeof(struct timex), which is 208 on 64-bit Linux."""
_TIME_ERROR = 5


class Clock(Protocol):
    """Everything that the agent knows of time; moments are milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, right or wrong."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back while the process lives."""

    def uptime_ms(self) -> int:
        """Milliseconds since the machine was booted, sleep included."""

    def boot(self) -> str:
        """Name this boot of the machine."""

    def trust(self) -> ClockTrust:
        """Tell whether the wall clock is known to be right."""


class SystemClock:
    """The machine's clocks; `trusted` where something outside the kernel's knowledge keeps the wall clock right."""

    def __init__(self, *, trusted: bool = False) -> None:
        self._always = trusted
        self._trust = ClockTrust.TRUSTED if trusted else ClockTrust.UNTRUSTED
        self._asked: float | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def uptime_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def boot(self) -> str:
        return _BOOT_ID.read_text().strip()

    def trust(self) -> ClockTrust:
        now = time.monotonic()
        if not self._always and (self._asked is None or now - self._asked > _TRUST_SECONDS):
            self._asked = now
            self._trust = ClockTrust.TRUSTED if self._synchronised() else ClockTrust.UNTRUSTED
        return self._trust

    def _synchronised(self) -> bool:
        """Ask the kernel (adjtimex(2), which only reads where modes is 0)."""
        state: int = self._libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return 0 <= state != _TIME_ERROR
