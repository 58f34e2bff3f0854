"""A headless Chromium driven by Playwright, with axe-core for accessibility checks: for tests of pages."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulators.services.error import ServiceError
from simulators.services.install import npm, programs

PACKAGES = ("playwright-core@1.65.1", "axe-core@4.14.1")
_FOLDER = "-".join(("browser", *(package.replace("@", "-") for package in PACKAGES)))
RUN_SECONDS_MAX = 300


def run(script: Path, given: Mapping[str, object]) -> Any:
    """Run a test's script, which receives `given` as JSON, and return the JSON that it prints."""
    node = shutil.which("node")
    if node is None:
        raise ServiceError("no node, which runs Playwright; run: sudo apt-get install npm")
    arguments = {**given, "modules": str(npm.install(_FOLDER, PACKAGES)), "chromium": programs.require("chromium")}
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
