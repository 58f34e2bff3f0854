"""Debian packages of which tests need a program, and not the service."""

import subprocess
import tempfile
from pathlib import Path

from cloud.jars import download
from simulators.services.error import ServiceError


def unpack(package: str) -> Path:
    """Return the folder of a package's files, downloaded and unpacked but not installed, so no service starts."""
    folder = download.cache_folder() / f"debian-{package}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        for command in (["apt-get", "download", package], ["sh", "-c", "dpkg-deb -x *.deb files"]):
            done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServiceError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}".rstrip())
        (Path(name) / "files").rename(folder)
    return folder
