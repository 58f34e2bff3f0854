"""npm packages in the cache: installed once, then reused."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cloud.jars import download
from simulators.services.error import ServiceError
from simulators.services.install import programs

INSTALL_SECONDS_MAX = 600


def install(name: str, packages: Sequence[str]) -> Path:
    """Return the folder of the node modules of these packages; `name` names their folder in the cache."""
    folder = download.cache_folder() / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            fetched = Path(temporary) / "fetched"
            fetched.mkdir()
            command = [programs.require("npm"), "install", "--no-audit", "--no-fund", "--prefix", str(fetched)]
            done = subprocess.run(
                [*command, *packages], capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX
            )
            if done.returncode != 0:
                raise ServiceError(f"{name}: npm install ended with status {done.returncode}\n{done.stderr}")
            fetched.rename(folder)
    return folder / "node_modules"
