"""A file system whose device fails: it lies in a file on another one, which is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.disks.small_disk import small_disk

UNWRITABLE = os.urandom(4_000_000)
"""More than its device takes; a write succeeds, and the later write-back fails."""


@contextmanager
def failing_disk(folder: Path) -> Iterator[Path]:
    """Mount one below a folder; skip the test where that is not permitted."""
    with small_disk(folder / "device", 2) as device:
        image, mounted = device / "image", folder / "failing"
        with image.open("wb") as file:
            file.truncate(16_000_000)
        subprocess.run(("mkfs.ext4", "-q", "-O", "^has_journal", str(image)), check=True)
        mounted.mkdir()
        if subprocess.run(
            ("mount", "-o", "loop", str(image), str(mounted)), capture_output=True, check=False
        ).returncode:
            pytest.skip("mounting is not allowed here")
        try:
            yield mounted
        finally:
            subprocess.run(("umount", "--lazy", str(mounted)), check=True)
