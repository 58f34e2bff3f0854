"""Shift the agent's wall clock by an offset in a file. Called in the agent's own process (simulators/launch.py).

libfaketime is not used: it also shifts timed waits of threads, so that they block while the clock is set back.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

VARIABLE = "ONCEGATE_SIM_CLOCK"
"""The environment variable that names the file with the offset in milliseconds."""


def install() -> None:
    """Shift SystemClock.wall_ms, the agent's only source of wall-clock time."""
    kind: Any = import_module("agent.clock").SystemClock
    file = Path(os.environ[VARIABLE])
    wall_ms = kind.wall_ms
    kind.wall_ms = lambda self: wall_ms(self) + int(file.read_text())
