"""A wall clock for another process, to be set back and forth while it runs, its timed waits included."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from simulators.services.install import programs

_SOURCE = Path(__file__).with_suffix(".c")


class SteppableClock:
    """The difference between a process's wall clock and ours."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "steppable_clock.so"
        self._file = folder / "clock"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True)
        self._file.write_bytes(bytes(8))

    @property
    def environment(self) -> Mapping[str, str]:
        """What the process needs in its environment."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        """Let the process's clock be off by so many seconds from now on."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
