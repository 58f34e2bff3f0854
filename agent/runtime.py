"""The interpreter, set for a service of two busy threads that makes many small values and hardly a cycle."""

from __future__ import annotations

import ctypes
import gc
import sys

GARBAGE_THRESHOLDS = (20_000, 50, 100)
"""Of the cycle collector. Each event's values die by their counts; looking for cycles among them each 700 values, as is
the default, took a quarter of an event's time."""
SWITCH_SECONDS = 0.001
"""How long a busy thread may keep the other waiting. The store's writer comes back from SQLite several times a commit;
each time it would wait 5 ms, the default, for the loop's thread."""
LARGE_BYTES = 1 << 20
"""Blocks of memory from this size on, such as those of fingerprints, go back to the system when they are let go. By
itself the C library would raise this bound with each block that it saw, to 32 MB."""
FREE_BYTES_MAX = 2 << 20
"""What is free at the end of the heap goes back from this size on; sooner, and a busy forwarder would take it again."""
ARENAS_MAX = 2
"""Heaps of the C library. By itself it gives each thread one of its own, up to 8 for each core, and each holds what it
once took."""
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def give_memory_back() -> None:
    """Have what is let go returned to the system; before there are threads."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc has it
        library.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)
        library.mallopt(_M_ARENA_MAX, ARENAS_MAX)


def tune() -> None:
    """Set it; what is loaded by now is not looked at by the collector again."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # what the start took and has let go
        trim(0)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
