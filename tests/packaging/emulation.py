"""Programs for arm64 on this machine: QEMU's user mode, registered with the kernel (binfmt_misc)."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulators.services.install import programs

_FOLDER = Path("/proc/sys/fs/binfmt_misc")
_NAME = "qemu-aarch64"
"""The name under which mmdebstrap looks for it."""
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
"""The head of an ELF file for this processor, whatever its ABI; an executable, or a shared object."""


@contextmanager
def arm64() -> Iterator[None]:
    """Register programs for arm64 with the kernel, in any root; a registration that exists is used and stays."""
    if platform.machine() == "aarch64":
        yield
        return
    qemu = programs.require("qemu-aarch64-static")
    if not (_FOLDER / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_FOLDER)], check=True)
    if (_FOLDER / _NAME).exists():
        yield
        return
    # F: the kernel opens the program now, so that roots need no copy of it.
    (_FOLDER / "register").write_text(f":{_NAME}:M::{_MAGIC}:{_MASK}:{qemu}:F")
    try:
        yield
    finally:
        (_FOLDER / _NAME).write_text("-1")
