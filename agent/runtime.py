"""Tunes the interpreter for two busy threads that create many small values and few reference cycles (decision 14)."""

import ctypes
import gc
import sys

GARBAGE_THRESHOLDS = (20_000, 50, 100)
"""Of the cycle collector. Each event's values are freed by reference counting; a search for cycles every 700 values,
the default, took a quarter of an event's time."""
SWITCH_SECONDS = 0.001
"""How long a busy thread may delay the other. The store's writer returns from SQLite several times a commit; each time
it would wait 5 ms, the default, for the loop's thread."""
LARGE_BYTES = 4 << 20
"""Freed blocks from this size on, such as those of fingerprints, are returned to the system. By default the C library
raises this threshold with each freed block, up to 32 MB. It is above the 3.7 MB that librdkafka takes and frees to
compress a request (zstd, level 3): the kernel would have to clear that memory again for each request."""
FREE_BYTES_MAX = 5 << 20
"""Free memory at the end of the heap is returned from this size on; such a block must remain there."""
ARENAS_MAX = 2
"""Heaps of the C library. By default each thread has one of its own, up to 8 for each core, and each keeps the memory
that it once used."""
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def return_freed_memory() -> None:
    """Have freed memory returned to the system; call before there are threads."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc has it
        library.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)
        library.mallopt(_M_ARENA_MAX, ARENAS_MAX)


def tune() -> None:
    """Set the thresholds; exclude all objects that exist by now from garbage collection."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # memory that the start used and freed
        trim(0)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
