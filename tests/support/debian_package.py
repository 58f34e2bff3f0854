"""Debian packages of which tests need a program, and not the service."""

import tempfile
from pathlib import Path

from cloud.jars import download
from tests.support.commands import output_of


def unpack(package: str) -> Path:
    """Return the folder of a package's files, downloaded and unpacked but not installed, so no service starts."""
    folder = download.cache_folder() / f"debian-{package}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        for command in (["apt-get", "download", package], ["sh", "-c", "dpkg-deb -x *.deb files"]):
            output_of(*command, cwd=Path(name))
        (Path(name) / "files").rename(folder)
    return folder
