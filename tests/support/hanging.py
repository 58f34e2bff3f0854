"""Stops one thread of a process while the others continue."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextmanager
def hung(pid: int, thread: str) -> Iterator[None]:
    """Stop one thread of a process, as if it waited for a disk that never answers."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    number = next(int(task.name) for task in tasks if (task / "comm").read_text().strip() == thread)
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request: int) -> None:
        if libc.ptrace(request, number, None, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    ptrace(_PTRACE_SEIZE)
    ptrace(_PTRACE_INTERRUPT)
    os.waitpid(number, _WALL)
    try:
        yield
    finally:
        if libc.ptrace(_PTRACE_DETACH, number, None, None) != 0:
            # It has ended meanwhile. A dead thread and its process remain until the tracer has waited for it.
            with suppress(ChildProcessError):
                os.waitpid(number, _WALL)
