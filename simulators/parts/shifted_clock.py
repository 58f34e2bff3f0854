"""Run any program, a Java machine too, with a wall clock that is off.

libfaketime cannot: it shifts what threads wait for, too, and Python's sleep then fails (EINVAL).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from simulators.parts import programs

_SOURCE = Path(__file__).with_suffix(".c")


def environment(folder: Path, seconds: int) -> dict[str, str]:
    """Give what a process needs in its environment, so that its clock is off by so many seconds."""
    library = folder / "shifted_clock.so"
    if not library.exists():
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_OFFSET_SECONDS": str(seconds)}
