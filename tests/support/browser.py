"""A headless Chromium driven by Playwright, with axe-core for accessibility checks: for tests of pages."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulators.services.error import ServiceError
from simulators.services.install import npm, programs
from tests.support.commands import output_of

PACKAGES = ("playwright-core@1.65.1", "axe-core@4.14.1")
_FOLDER = "-".join(("browser", *(package.replace("@", "-") for package in PACKAGES)))


def run(script: Path, given: Mapping[str, object]) -> Any:
    """Run a test's script, which receives `given` as JSON, and return the JSON that it prints."""
    node = shutil.which("node")
    if node is None:
        raise ServiceError("no node, which runs Playwright; run: sudo apt-get install npm")
    arguments = {**given, "modules": str(npm.install(_FOLDER, PACKAGES)), "chromium": programs.require("chromium")}
    return json.loads(output_of(node, script, json.dumps(arguments)))
