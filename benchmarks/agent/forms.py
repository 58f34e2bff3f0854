"""The forms of our agent that a run compares: as a package installs it (compiled), pure, or of another checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from benchmarks.agent import programs

ROOT = Path(__file__).resolve().parents[2]
BUILD_SECONDS_MAX = 1_800
_SOURCES = ("agent", "contract", "setup.py", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Form:
    """An installed agent: its name in the tables, and the interpreter that finds it."""

    name: str
    python: Path


def pure() -> Form:
    """Return this checkout without compilation."""
    return Form("pure", Path(sys.executable))


def checkout(folder: Path) -> Form:
    """Return the agent of another checkout, by its environment in .venv."""
    python = folder.resolve() / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"bench-agent: {python} does not exist; run `make setup` in {folder}")
    return Form(folder.resolve().name, python)


def compiled() -> Form:
    """Return this checkout compiled, as packages contain it; built once for these sources, which takes some minutes."""
    folder = programs.folder() / "compiled" / _digest()
    python = folder / "environment" / "bin" / "python"
    if not (folder / "built").exists():
        print("bench-agent: compiling the agent (once for these sources, some minutes)", flush=True)
        _install(_wheel(folder), folder / "environment", python)
        (folder / "built").touch()
    # Last in the path, so that benchmarks and simulators are found here, and the agent where it is compiled.
    (_packages(folder / "environment") / "zz-checkout.pth").write_text(f"{ROOT}\n")
    return Form("compiled", python)


def run_compiled(module: str) -> None:
    """Run this program again in the environment of the compiled form, unless it runs there already."""
    python = compiled().python
    if Path(sys.prefix) != python.parent.parent:
        # Without the working directory, in which the sources would be found before the compiled form.
        os.execve(python, [str(python), "-m", module, *sys.argv[1:]], {**os.environ, "PYTHONSAFEPATH": "1"})


def _digest() -> str:
    digest = blake2b(sys.version.encode(), digest_size=8)
    for name in _SOURCES:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.[pc]*")):
            if file.suffix in (".py", ".c", ".toml"):
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _wheel(folder: Path) -> Path:
    done = subprocess.run(
        [str(ROOT / "packaging" / "wheel.sh"), str(folder)],
        env={**os.environ, "PIP": f"{sys.executable} -m pip", "ONCEGATE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode:
        raise SystemExit(f"bench-agent: the agent cannot be compiled: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.split()[-1])


def _install(wheel: Path, environment: Path, python: Path) -> None:
    """Install a wheel into an environment that finds its requirements in this one."""
    venv.create(environment, clear=True, symlinks=True)
    # A folder named in a .pth file is searched, but its own .pth files, such as the checkout's, are not read.
    (_packages(environment) / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python3*/site-packages"))
