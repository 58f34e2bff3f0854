"""A file of which another process cannot read some bytes, as at a bad sector."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulators.services.install import programs

_SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class BadSectors:
    """The bytes of one file, whatever its name becomes, that cannot be read."""

    library: Path
    inode: int
    first: int
    last: int

    @classmethod
    def of(cls, file: Path, first: int, last: int, folder: Path) -> BadSectors:
        """Build what makes them unreadable in a folder."""
        library = folder / "bad_sectors.so"
        subprocess.run([programs.require("cc"), "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        return cls(library, file.stat().st_ino, first, last)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the process needs in its environment."""
        return {
            "LD_PRELOAD": str(self.library),
            "BAD_INODE": str(self.inode),
            "BAD_FIRST": str(self.first),
            "BAD_LAST": str(self.last),
        }
