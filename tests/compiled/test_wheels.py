"""The wheels as people install them: compiled into a fresh environment; pure from the checkout and the sdist alike."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.compiled.environment import COMPILED, MODULES, PROJECT, ROOT, build_wheel

INSTALLED_MEGABYTES_MAX = 10
BUILD_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
CONFIGURATION = '[gateway]\nid = "gw1"\nstate_dir = "state"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("pure"), compiled=False)


def content(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_clean(folder: Path) -> Path:
    """Create an environment independent of this one; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def test_every_compiled_module_exists_and_none_is_named_twice() -> None:
    assert len(MODULES) == len(set(MODULES))
    assert [name for name in MODULES if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


def test_the_compiler_is_the_version_that_checks_the_types() -> None:
    [requirement] = COMPILED["requires"]
    assert requirement.replace("[mypyc]", "") in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.mark.heavy
def test_a_compiled_wheel_runs_from_a_clean_environment(compiled_wheel: Path, tmp_path: Path) -> None:
    assert "linux" in compiled_wheel.name
    suffix = EXTENSION_SUFFIXES[0]
    objects = {name: len(data) for name, data in content(compiled_wheel).items() if name.endswith(suffix)}
    library = f"{COMPILED['library']}__mypyc"
    assert {name.removesuffix(suffix).replace("/", ".") for name in objects} == {
        *MODULES,
        *COMPILED["extensions"],
        library,
    }
    assert sum(objects.values()) <= INSTALLED_MEGABYTES_MAX * 10**6
    python = make_clean(tmp_path / "gateway")
    pip(python, "install", "-c", str(ROOT / "constraints.txt"), str(compiled_wheel))
    (tmp_path / "oncegate.toml").write_text(CONFIGURATION)
    for arguments, printed in (
        (["version"], f"oncegate {PROJECT['project']['version']} compiled\n"),
        (["check", "--config", "oncegate.toml"], "oncegate.toml: fine\n"),
    ):
        command = [str(python.with_name("oncegate")), *arguments]
        assert subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout == printed


@pytest.mark.heavy
def test_checkout_and_sdist_make_the_same_pure_wheel_without_the_compiler(pure_wheel: Path, tmp_path: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    python = make_clean(tmp_path / "builder")
    pip(python, "install", *PROJECT["build-system"]["requires"])
    assert subprocess.run([python, "-c", "import mypyc"], capture_output=True, check=False).returncode != 0
    command = [str(python), "-c", BUILD_SDIST, str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    sdist = tmp_path / printed.split()[-1]
    pip(python, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(sdist))
    assert content(tmp_path / pure_wheel.name) == content(pure_wheel)
