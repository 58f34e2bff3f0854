"""The compiled wheel as people install it, into a fresh environment."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.compiled.environment import COMPILED, MODULES, PROJECT, ROOT
from tests.support.commands import output_of

INSTALLED_MEGABYTES_MAX = 10
CONFIGURATION = '[gateway]\nid = "gw1"\nstate_dir = "state"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'


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
    with ZipFile(compiled_wheel) as archive:
        objects = {one.filename: one.file_size for one in archive.infolist() if one.filename.endswith(suffix)}
    library = f"{COMPILED['library']}__mypyc"
    assert {name.removesuffix(suffix).replace("/", ".") for name in objects} == {
        *MODULES,
        *COMPILED["extensions"],
        library,
    }
    assert sum(objects.values()) <= INSTALLED_MEGABYTES_MAX * 10**6
    output_of(sys.executable, "-m", "venv", tmp_path / "gateway")
    python = tmp_path / "gateway" / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    output_of(*pip, "-c", ROOT / "constraints.txt", compiled_wheel)
    (tmp_path / "oncegate.toml").write_text(CONFIGURATION)
    for arguments, printed in (
        (["version"], f"oncegate {PROJECT['project']['version']} compiled\n"),
        (["check", "--config", "oncegate.toml"], "oncegate.toml: fine\n"),
    ):
        assert output_of(python.with_name("oncegate"), *arguments, cwd=tmp_path) == printed
