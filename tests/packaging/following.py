"""The package of the next version."""

from __future__ import annotations

import subprocess
from pathlib import Path


def version_up(package: Path, folder: Path) -> Path:
    """Create the next version's package, with another version and another default configuration."""
    unpacked, following = folder / "unpacked", folder / "following.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("Version: 0.", "Version: 9."))
    configuration = unpacked / "etc" / "oncegate" / "oncegate.toml"
    configuration.write_text(configuration.read_text() + "# new in this version\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(unpacked), str(following)], check=True)
    return following
