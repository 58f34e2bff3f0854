"""Shift the agent's wall clock by what a file says. Called in the agent's own process (simulators/launch.py).

Not libfaketime: it also shifts what threads wait for, so that a clock set back stops them, which a kernel's does not.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

VARIABLE = "ONCEGATE_SIM_CLOCK"
"""Names the file, which holds the offset in milliseconds."""


def install() -> None:
    """Shift SystemClock.wall_ms, the only clock in the agent that tells a date."""
    kind: Any = import_module("agent.clock").SystemClock
    file = Path(os.environ[VARIABLE])
    wall_ms = kind.wall_ms
    kind.wall_ms = lambda self: wall_ms(self) + int(file.read_text())
