"""Packages of docs/examples, installed."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def install_example(name: str, folder: Path) -> Path:
    """Install an example package by pip into a folder of its own; return the folder."""
    build = folder / "build"
    shutil.copytree(ROOT / "docs" / "examples" / name, build)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(folder))
    subprocess.run((sys.executable, "-m", "pip", "install", *options, str(build)), check=True)
    return folder
