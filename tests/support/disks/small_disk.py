"""A file system of a few megabytes in memory, which tests can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int, *options: str) -> Iterator[Path]:
    """Mount a file system in memory; skip the test where that is not permitted."""
    folder.mkdir(parents=True)
    settings = ",".join((f"size={megabytes}m", *options))
    mount = ("mount", "-t", "tmpfs", "-o", settings, "tmpfs", str(folder))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


def fill(disk: Path) -> Path:
    """Fill the free space; return the file that does."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(65_536)):
            pass
    return filler


def use_up_inodes(disk: Path) -> list[Path]:
    """Create files until no inode is left."""
    taken: list[Path] = []
    with suppress(OSError):
        while True:
            (disk / f"file {len(taken)}").touch(exist_ok=False)
            taken.append(disk / f"file {len(taken)}")
    return taken
