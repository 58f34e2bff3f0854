"""The checksums of a release, as `sha256sum --check` reads them."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write(folder: Path) -> None:
    """Write the checksums of all files of a folder."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != NAME)
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / NAME).write_text("".join(lines))
