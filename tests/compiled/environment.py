"""The compiled form in an environment of its own: its wheel, and the packages of this one beside it."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILED = PROJECT["tool"]["oncegate"]["compiled"]
MODULES = [f"{package}.{name}" for package, names in COMPILED["modules"].items() for name in names]
BUILD_SECONDS_MAX = 1_800


def build_wheel(folder: Path) -> Path:
    done = subprocess.run(
        [str(ROOT / "packaging" / "wheel.sh"), str(folder)],
        env={**os.environ, "PIP": f"{sys.executable} -m pip", "ONCEGATE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.split()[-1])


def make_environment(folder: Path, wheel: Path) -> Path:
    """Install the wheel into a new environment that finds all else here; return its interpreter."""
    venv.create(folder, clear=True, symlinks=True)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python3*/site-packages"))
    # A folder named in a .pth file is searched, but its own .pth files, such as the checkout's, are not read.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--force-reinstall", str(wheel)], check=True)
    return python
