"""The interpreter's settings, observed through the C library: freed memory is returned to the system."""

import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import version
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent import release
from agent.backoff import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, Backoff
from agent.runtime import LARGE_BYTES
from contract import fingerprint
from tests.agent.http.serving import serving

# By default, glibc takes further blocks of the size of a freed one from its heap, and keeps them.
_PROGRAM = f"""
import ctypes
from agent.runtime import return_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
return_freed_memory()
first = bytearray(4 * {LARGE_BYTES})
del first
before = library.mallinfo2().hblkhd
second = bytearray(2 * {LARGE_BYTES})
print(library.mallinfo2().hblkhd - before)
"""


def test_a_large_block_lies_apart_from_the_heap_and_so_goes_back() -> None:
    said = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout
    assert int(said) >= 2 * LARGE_BYTES


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


def test_the_service_does_not_pay_for_what_only_its_metrics_and_readers_of_the_store_need() -> None:
    service = "import sys, agent.cli.main, agent.service, agent.http.sources, agent.http.server"
    code = f"{service}; print({{'prometheus_client', 'sqlite_utils'}} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


VERSION = version("oncegate")


def test_the_form_is_that_of_the_loaded_module() -> None:
    compiled = isinstance(fingerprint.__loader__, ExtensionFileLoader)
    assert release.form() == ("compiled" if compiled else "pure")


async def test_status_metrics_and_live_view_have_version_and_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        documents = [(await served.client.get(f"/api/v1/{name}")).document for name in ("status", "live")]
        metrics = (await served.client.get("/metrics")).body.decode()
    assert [(found["version"], found["form"]) for found in documents] == [(VERSION, release.form())] * 2
    assert f'oncegate_build_info{{form="{release.form()}",version="{VERSION}"}} 1.0' in metrics


@given(seed=st.integers(), attempts=st.integers(1, 100))
def test_waits_are_bounded_and_start_small_after_a_success(seed: int, attempts: int) -> None:
    backoff = Backoff(Random(seed))

    waits = [backoff.next_seconds() for _ in range(attempts)]
    backoff.reset()

    assert all(BACKOFF_SECONDS_FIRST / 2 <= wait <= BACKOFF_SECONDS_MAX for wait in waits)
    assert backoff.next_seconds() <= BACKOFF_SECONDS_FIRST


def test_two_gateways_do_not_come_back_together() -> None:
    one, other = Backoff(Random(1)), Backoff(Random(2))

    assert [one.next_seconds() for _ in range(5)] != [other.next_seconds() for _ in range(5)]
