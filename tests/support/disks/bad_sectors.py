"""A file with bytes that another process cannot read, as in bad sectors."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulators.services.install import programs

_SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class BadSectors:
    """Unreadable bytes of one file, identified by its inode."""

    library: Path
    inode: int
    first: int
    last: int

    @classmethod
    def of(cls, file: Path, first: int, last: int, folder: Path) -> BadSectors:
        """Build the library that makes the bytes unreadable."""
        library = folder / "bad_sectors.so"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        return cls(library, file.stat().st_ino, first, last)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that activates the library."""
        return {
            "LD_PRELOAD": str(self.library),
            "BAD_INODE": str(self.inode),
            "BAD_FIRST": str(self.first),
            "BAD_LAST": str(self.last),
        }
