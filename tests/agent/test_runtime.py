"""The interpreter's settings, observed through the C library: freed memory is returned to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.runtime import LARGE_BYTES

# By default, glibc takes further blocks of the size of a freed one from its heap, and keeps them.
_PROGRAM = f"""
import ctypes, sys
from agent.runtime import return_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
if sys.argv[1] == "set":
    return_freed_memory()
first = bytearray(4 * {LARGE_BYTES})
del first
before = library.mallinfo2().hblkhd
second = bytearray(2 * {LARGE_BYTES})
print(library.mallinfo2().hblkhd - before)
"""


@pytest.mark.parametrize(("how", "apart"), [("set", True), ("alone", False)])
def test_a_large_block_lies_apart_from_the_heap_and_so_goes_back(how: str, apart: bool) -> None:
    said = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True).stdout
    assert (int(said) >= 2 * LARGE_BYTES) is apart


_CLIENT = """
import resource
from agent.runtime import return_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

return_freed_memory()
bytearray(3_661_824)
before = faults()
bytearray(3_661_824)
print(faults() - before)
"""


def test_the_memory_in_which_the_kafka_client_compresses_a_request_is_used_again() -> None:
    """It takes and frees this block for each request, and the kernel clears each of its pages at the first touch."""
    said = subprocess.run([sys.executable, "-c", _CLIENT], capture_output=True, text=True, check=True).stdout
    assert int(said) < 100
