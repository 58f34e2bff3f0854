"""The compiled form in an environment of its own: its wheel, and the packages of this one beside it."""

import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from tests.support.commands import output_of

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILED = PROJECT["tool"]["oncegate"]["compiled"]
MODULES = [f"{package}.{name}" for package, names in COMPILED["modules"].items() for name in names]


def build_wheel(folder: Path) -> Path:
    environment = {"PIP": f"{sys.executable} -m pip", "ONCEGATE_COMPILE": "1"}
    return Path(output_of(ROOT / "packaging" / "wheel.sh", folder, environment=environment).split()[-1])


def make_environment(folder: Path, wheel: Path) -> Path:
    """Install the wheel into a new environment that finds all else here; return its interpreter."""
    venv.create(folder, clear=True, symlinks=True)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python3*/site-packages"))
    # A folder named in a .pth file is searched, but its own .pth files, such as the checkout's, are not read.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    output_of(*install, "--force-reinstall", wheel)
    return python
