"""A settable wall clock for another process, which also affects its timed waits."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from simulators.services.install import programs

_SOURCE = Path(__file__).with_suffix(".c")


class SteppableClock:
    """The offset of a process's wall clock."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "steppable_clock.so"
        self._file = folder / "clock"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True)
        self._file.write_bytes(bytes(16))

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set the offset of the process's clock, in seconds, from now on."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def report(self, *, synchronised: bool) -> None:
        """Set what the kernel reports to the process from now on, instead of the truth."""
        with self._file.open("r+b") as file:
            file.seek(8)
            file.write((2 if synchronised else 1).to_bytes(8, "little"))
