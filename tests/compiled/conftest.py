"""Fixtures: the interpreters of the two forms."""

import shutil
import sys
from pathlib import Path

import pytest

import agent
import contract
from agent import release
from tests.compiled.environment import build_wheel, make_environment


@pytest.fixture(scope="session")
def compiled_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def compiled_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter that imports the compiled form: this one where it does, else that of a new environment."""
    if release.form() == "compiled":
        return Path(sys.executable)
    wheel: Path = request.getfixturevalue("compiled_wheel")
    return make_environment(tmp_path_factory.mktemp("compiled") / "environment", wheel)


@pytest.fixture(scope="session")
def pure_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sources of what runs here, without anything compiled."""
    folder = tmp_path_factory.mktemp("pure")
    for package in (agent, contract):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return folder
