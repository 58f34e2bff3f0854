"""Build the compiled form, and run the quick tests of agent and contract on it: `python -m tests.compiled [PYTEST...]`.

The arguments replace those tests. Everything is below build/compiled; the wheel is built anew on each run, but with
KEEP=1 in the environment the last one is used.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compiled.environment import ROOT, build_wheel, make_environment
from tests.support.commands import output_of

FOLDER = ROOT / "build" / "compiled"
TESTS = ("-m", "not heavy", "tests/agent", "tests/contract")
TWO_FORMS = ("tests/compiled/test_two_forms.py",)
COMPILED_PACKAGES = ("agent", "contract")


def main() -> int:
    """Return pytest's exit status."""
    kept = sorted(FOLDER.glob("*.whl")) if os.environ.get("KEEP") == "1" else []
    wheel = kept[-1] if kept else build_wheel(FOLDER)
    python = make_environment(FOLDER / "environment", wheel)
    tests = _copy_without_sources(FOLDER / "checkout")
    runs = [sys.argv[1:]] if sys.argv[1:] else [TESTS, TWO_FORMS]
    return max(subprocess.run([python, "-m", "pytest", *run], cwd=tests, check=False).returncode for run in runs)


def _copy_without_sources(folder: Path) -> Path:
    """Copy the checkout without the compiled packages, whose sources would be found before the installed ones."""
    shutil.rmtree(folder, ignore_errors=True)
    names = output_of("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, names.split("\0")):
        if not name.startswith(tuple(f"{package}/" for package in COMPILED_PACKAGES)) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    sys.exit(main())
