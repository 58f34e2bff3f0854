"""The checksums of a release, as `sha256sum --check` reads them, and their signature."""

import hashlib
import subprocess
from pathlib import Path

from release.errors import ReleaseError

NAME = "SHA256SUMS"
NAMESPACE = "oncegate-release"
"""What the signature is for: one made with this key for something else counts for nothing here."""


def write(folder: Path) -> None:
    """Write the checksums of all files of a folder."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != NAME)
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / NAME).write_text("".join(lines))


def sign(folder: Path, key: Path) -> None:
    """Write the signature of the checksums (`SHA256SUMS.sig`), which `ssh-keygen -Y verify` checks.

    The key is a private one of OpenSSH, or a public one whose private part ssh-agent or a security key holds.
    """
    command = ("ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE, folder / NAME)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{NAME} is not signed: {done.stderr.strip()}")
