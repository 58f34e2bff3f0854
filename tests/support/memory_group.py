"""A memory limit like systemd's MemoryMax: a cgroup of its own, where this machine permits one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A cgroup, of version 1 or 2."""

    folder: Path

    def wrap(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return a command that runs another one in the group."""
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command)

    def kills(self) -> int:
        """Return the number of processes that the kernel has killed for their memory."""
        for name in ("memory.events", "memory.oom_control"):
            if (file := self.folder / name).exists():
                return int(dict(line.split() for line in file.read_text().splitlines())["oom_kill"])
        raise FileNotFoundError(self.folder)


@contextmanager
def memory_group(bytes_max: int) -> Iterator[MemoryGroup]:
    """Create a group with this limit; skip the test where that is not permitted."""
    first = _ROOT / "memory" if (_ROOT / "memory").is_dir() else None
    folder = (first or _ROOT) / f"oncegate-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            if first is None:
                (folder / "memory.swap.max").write_text("0")
            (folder / ("memory.max" if first is None else "memory.limit_in_bytes")).write_text(str(bytes_max))
        except OSError as error:
            pytest.skip(f"no memory bound can be set here: {error}")
        yield MemoryGroup(folder)
    finally:
        folder.rmdir()
