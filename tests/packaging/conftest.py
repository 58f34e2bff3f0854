"""Fixtures: for each supported release of Debian one package and one clean system, for all tests of this folder."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging import roots
from tests.packaging.roots import CHECKOUT, Root
from tests.support.commands import output_of


@pytest.fixture(scope="session", params=roots.SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def package(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package(release, "", tmp_path_factory.mktemp("dist"))


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


def build_package(release: str, architecture: str, folder: Path) -> Path:
    """Build the package, by default for this machine's processor; or return that of the release in $ONCEGATE_DIST."""
    if chosen := os.environ.get("ONCEGATE_DIST"):
        [built] = Path(chosen).glob(f"oncegate_*+deb{release}_{architecture or 'amd64'}.deb")
        return built
    words = ["make", "--no-print-directory", "deb", f"DIST={folder}", f"RELEASE={release}", f"ARCH={architecture}"]
    return Path(output_of(*words, cwd=CHECKOUT).split()[-1])


def version_up(package: Path, folder: Path) -> Path:
    """Create the next version's package, with another version and another default configuration."""
    unpacked, following = folder / "unpacked", folder / "following.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("Version: 0.", "Version: 9."))
    configuration = unpacked / "etc" / "oncegate" / "oncegate.toml"
    configuration.write_text(configuration.read_text() + "# new in this version\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(unpacked), str(following)], check=True)
    return following
