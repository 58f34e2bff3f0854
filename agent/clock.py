"""The gateway's clocks, and whether the kernel reports the wall clock as synchronised."""

import ctypes
import time
from pathlib import Path
from typing import Final, Protocol

from contract.record import ClockTrust

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TRUST_SECONDS: Final = 1.0
"""How long the kernel's answer about its synchronisation is cached."""
_TIMEX_BYTES: Final = 256
"""At least sizeof(struct timex), which is 208 on 64-bit Linux."""
_TIME_ERROR: Final = 5
"""Of adjtimex(2): the clock is not synchronised."""


class Clock(Protocol):
    """The agent's source of time, in milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 UTC, right or wrong."""

    def monotonic_ms(self) -> int:
        """Return milliseconds that never decrease during the process."""

    def uptime_ms(self) -> int:
        """Return milliseconds since the machine was booted, including suspension."""

    def boot(self) -> str:
        """Return the id of this boot of the machine."""

    def trust(self) -> ClockTrust:
        """Return whether the wall clock is known to be correct."""


class SystemClock:
    """The machine's clocks; `trusted` where the wall clock is kept right unknown to the kernel (decision 8)."""

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
            state: int = self._libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # only reads where modes is 0
            self._trust = ClockTrust.TRUSTED if 0 <= state != _TIME_ERROR else ClockTrust.UNTRUSTED
        return self._trust
