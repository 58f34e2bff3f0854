"""A headless Chromium driven by Playwright, with axe-core for accessibility checks: for tests of pages."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulators.services.error import ServiceError
from simulators.services.install import cache, programs

PACKAGES = ("playwright-core@1.65.1", "axe-core@4.14.1")
INSTALL_SECONDS_MAX = 600
RUN_SECONDS_MAX = 300


def install() -> Path:
    """Return the folder of the node modules, which npm installs once."""
    folder = cache.folder() / "-".join(("browser", *(package.replace("@", "-") for package in PACKAGES)))
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            command = [programs.require("npm"), "install", "--no-audit", "--no-fund", "--prefix", f"{name}/fetched"]
            done = subprocess.run(
                [*command, *PACKAGES], capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX
            )
            if done.returncode != 0:
                raise ServiceError(f"browser: npm install ended with status {done.returncode}\n{done.stderr}")
            (Path(name) / "fetched").rename(folder)
    return folder / "node_modules"


def run(script: Path, given: Mapping[str, object]) -> Any:
    """Run a test's script, which receives `given` as JSON, and return the JSON that it prints."""
    node = shutil.which("node")
    if node is None:
        raise ServiceError("no node, which runs Playwright; run: sudo apt-get install npm")
    arguments = {**given, "modules": str(install()), "chromium": programs.require("chromium")}
    done = subprocess.run(
        [node, str(script), json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise ServiceError(f"{script.name} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)
