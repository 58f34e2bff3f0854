"""The interpreter, set for a service of two busy threads that makes many small values and hardly a cycle."""

from __future__ import annotations

import gc
import sys

GARBAGE_THRESHOLDS = (20_000, 50, 100)
"""Of the cycle collector. Each event's values die by their counts; looking for cycles among them each 700 values, as is
the default, took a quarter of an event's time."""
SWITCH_SECONDS = 0.001
"""How long a busy thread may keep the other waiting. The store's writer comes back from SQLite several times a commit;
each time it would wait 5 ms, the default, for the loop's thread."""


def tune() -> None:
    """Set it; what is loaded by now is not looked at by the collector again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
