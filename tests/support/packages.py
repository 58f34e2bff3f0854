"""Packages of docs/examples, installed."""

import shutil
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.support.commands import output_of


def install_example(name: str, folder: Path) -> Path:
    """Install an example package by pip into a folder of its own; return the folder."""
    build = folder / "build"
    shutil.copytree(ROOT / "docs" / "examples" / name, build)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(folder))
    output_of(sys.executable, "-m", "pip", "install", *options, build)
    return folder
