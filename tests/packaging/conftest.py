"""Fixtures: for each supported release of Debian one package and one clean system, for all tests of this folder."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging import roots
from tests.packaging.roots import CHECKOUT, Root

BUILD_SECONDS_MAX = 1_800


@pytest.fixture(scope="session", params=roots.SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def package(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        ["make", "--no-print-directory", "deb", f"DIST={tmp_path_factory.mktemp('dist')}", f"RELEASE={release}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.split()[-1])


@pytest.fixture(scope="session")
def archive(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not roots.may_build():
        pytest.skip("only root can make systems")
    file = tmp_path_factory.mktemp("roots") / "clean.tar"
    roots.build(file, roots.SUITES[release])
    return file


@pytest.fixture
def root(archive: Path, tmp_path: Path) -> Iterator[Root]:
    yield roots.unpack(archive, tmp_path / "root")
    subprocess.run(["rm", "-rf", "--one-file-system", str(tmp_path / "root")], check=True)
