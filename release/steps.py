"""The steps of a release. Each builds from an export of the last commit, so that only committed files are in it."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from release import advisories, sdist
from release.errors import ReleaseError

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's names of the supported architectures, and those of wheels."""
STEP_SECONDS_MAX = 3_600


@dataclass(frozen=True, slots=True)
class Build:
    """Where a release is built, and from what."""

    source: Path
    """The exported commit."""
    work: Path
    dist: Path
    version: str
    epoch: int
    """The time of the commit, in seconds, which stands for all times in what is built."""

    def run(self, *command: str | Path, **environment: str) -> str:
        """Run a command in the export and return what it prints; raise ReleaseError where it fails."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.source,
            env={**os.environ, **self._environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            umask=0o022,
            timeout=STEP_SECONDS_MAX,
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-4_000:]
            raise ReleaseError(f"{' '.join(map(str, command))}: status {done.returncode}\n{output}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Pin the time, the order, and the programs that build."""
        return {
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PIP_CONSTRAINT": str(self.source / "constraints.txt"),
        }


def export(work: Path, dist: Path) -> Build:
    """Export the last commit into the work folder."""
    source = work / "source"
    source.mkdir()
    try:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
        epoch = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"a release is built from a commit of a git checkout: {error}") from error
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    return Build(source, work, dist, version, int(epoch))


def uncommitted() -> bool:
    """Whether files of the checkout differ from the last commit."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True)
    return bool(status.stdout)


def build_python(build: Build) -> Path:
    """Build the sdist, and from it the pure wheel; return the wheel."""
    build.run(sys.executable, "-m", "build", "--outdir", build.dist, build.source)
    sdist.normalize(build.dist / f"oncegate-{build.version}.tar.gz", build.epoch)
    return build.dist / f"oncegate-{build.version}-py3-none-any.whl"


def build_all_debian(build: Build, releases: Sequence[str], architectures: Sequence[str]) -> None:
    """Build the wheels and packages for these releases and architectures, one on each core."""
    wanted = [(release, architecture) for release in releases for architecture in architectures]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for built in [pool.submit(build_debian, build, *target) for target in wanted]:
            built.result()


def build_debian(build: Build, release: str, architecture: str) -> None:
    """Build the compiled wheel for one release and one architecture, and the Debian package with it."""
    built = build.run("packaging/compile.sh", release, MACHINES[architecture], build.dist)
    build.run("packaging/deb.sh", architecture, release, DIST=str(build.dist), WHEEL=built.split()[-1])


BILLS = {"gateway": "oscore", "cloud": "cloud"}
"""What is described, by its name in the file's name, with the extra that installs it."""


def describe(build: Build, wheel: Path, name: str) -> None:
    """Write a bill of materials: what the wheel installs in the pinned versions, and the libraries inside of that.

    Raise ReleaseError where a version in it is known to be vulnerable.
    """
    environment = build.work / name
    build.run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python)
    build.run(*pip, "install", "--no-compile", f"{wheel}[{BILLS[name]}]")
    for file in environment.rglob("direct_url.json"):
        file.unlink()  # it names the path of this build
    tool = (Path(sys.executable).with_name("cyclonedx-py"), "environment", "--output-reproducible", "--sv", "1.6")
    file = build.dist / f"oncegate-{build.version}-{name}.cdx.json"
    build.run(*tool, "--pyproject", "pyproject.toml", "--mc-type", "application", "-o", file, python)
    locks = [build.source / "cloud" / "jars" / "jars.lock"] if name == "cloud" else []
    build.run(python, "-I", build.source / "release" / "libraries.py", file, *locks)
    advisories.check(file)
