"""A release as people get it: built twice with equal bytes, and installed from its files into a clean environment."""

import json
import os
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from simulators.services.process import Command, Process
from tests.docs.pages import ROOT, blocks
from tests.support import agent_process
from tests.support.commands import output_of

pytestmark = pytest.mark.heavy
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
EVENT = {"device": "urn:dev:mac:00158d0001a2b3c4", "id": 17, "data": {"temperature": 21.5}}
DEBIAN = "12"
COMPILED_WHEEL = f"oncegate-{VERSION}-cp311-cp311-linux_x86_64.whl"


def build(folder: Path, work: Path, mask: int) -> Path:
    """Build a release with one Debian package, in this work folder and with this umask."""
    work.mkdir()
    command = ("make", "--no-print-directory", "release", f"DIST={folder}", f"RELEASE={DEBIAN}", "ARCH=amd64")
    output_of(*command, cwd=ROOT, environment={"TMPDIR": str(work)}, umask=mask)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a release; or return that of this commit in $ONCEGATE_DIST."""
    if chosen := os.environ.get("ONCEGATE_DIST"):
        return Path(chosen)
    folder = tmp_path_factory.mktemp("release")
    return build(folder / "dist", folder / "work", 0o022)


@pytest.fixture(scope="module")
def other_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("again")
    return build(folder / "dist", folder / "another-work-folder", 0o077)


def shared_objects(release: Path) -> dict[str, bytes]:
    """Return what the compiler and the linker have built for the compiled wheel."""
    with zipfile.ZipFile(release / COMPILED_WHEEL) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".so")}


def test_two_builds_have_equal_bytes(release: Path, other_release: Path) -> None:
    names = sorted(file.name for file in release.iterdir())
    assert names == [
        "SHA256SUMS",
        f"oncegate-{VERSION}-cloud.cdx.json",
        COMPILED_WHEEL,
        f"oncegate-{VERSION}-gateway.cdx.json",
        f"oncegate-{VERSION}-notes.md",
        f"oncegate-{VERSION}-py3-none-any.whl",
        f"oncegate-{VERSION}.tar.gz",
        f"oncegate_{VERSION}+deb{DEBIAN}_amd64.deb",
    ]
    assert [name for name in names if (release / name).read_bytes() != (other_release / name).read_bytes()] == []


def test_compilers_leave_no_trace_of_the_build_in_their_objects(release: Path, other_release: Path) -> None:
    objects, others = shared_objects(release), shared_objects(other_release)
    assert [name for name in objects if name.startswith("agent/coap/_datagrams.")] != []
    assert sum("oncegate_compiled" in name for name in objects) == 1
    assert {name for name in objects if objects[name] != others[name]} == set()
    traces = (b".debug_info", b"/tmp/source")  # the folder of packaging/compile.sh, in both builds
    assert [(name, trace) for name in objects for trace in traces if trace in objects[name]] == []


def test_the_checksums_are_those_of_the_files(release: Path) -> None:
    checked = output_of("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release)
    assert checked.count(": OK\n") == len(list(release.iterdir())) - 1


def test_the_sdist_has_every_file_of_the_commit(release: Path) -> None:
    listed = output_of("git", "ls-files", "-z", cwd=ROOT)
    with tarfile.open(release / f"oncegate-{VERSION}.tar.gz") as sdist:
        packed = {member.name.partition("/")[2] for member in sdist if member.isfile()}
    assert {file for file in listed.split("\0") if file} - packed == {".gitignore"}


def test_the_bill_of_materials_names_what_a_gateway_installs(release: Path) -> None:
    bill = json.loads((release / f"oncegate-{VERSION}-gateway.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "oncegate")
    assert bill["metadata"]["component"]["version"] == VERSION
    packages = [one for one in bill["components"] if one.get("purl", "").startswith("pkg:pypi/")]
    versions = {component["name"].lower().replace("_", "-"): component["version"] for component in packages}
    needed = [re.split(r"[<>=]", name)[0] for name in (*PROJECT["dependencies"], "cryptography")]
    pins = {name.replace("_", "-"): version for name, version in PINS.items()}
    assert {name: versions[name] for name in needed} == {name: pins[name] for name in needed}
    assert "pyspark" not in versions


@pytest.mark.parametrize("suffix", ["-py3-none-any.whl", ".tar.gz"])
def test_what_was_built_is_installed_and_accepts_an_event(release: Path, tmp_path: Path, suffix: str) -> None:
    environment = tmp_path / "gateway"
    output_of(sys.executable, "-m", "venv", environment)
    pip = (environment / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    output_of(*pip, release / f"oncegate-{VERSION}{suffix}", cwd=tmp_path)
    program = str(environment / "bin" / "oncegate")
    assert output_of(program, "version", cwd=tmp_path) == f"oncegate {VERSION} pure\n"

    (tmp_path / "oncegate.toml").write_text(blocks(ROOT / "README.md", "toml")[0])
    given = {"ONCEGATE_COAP__BIND": "127.0.0.1:0", "ONCEGATE_HTTP__BIND": "127.0.0.1:0"}
    command = (program, "run", "--config", "oncegate.toml")
    agent = Process(Command("agent", command, tmp_path / "agent.log", tmp_path, given))
    agent.start()
    try:
        port = agent_process.wait_until_ready(agent)["http"]
        assert [agent_process.post(port, EVENT) for _ in range(2)] == [200, 200]
        assert agent.terminate() == 0
    finally:
        agent.kill()
    assert output_of(program, "events", "--config", "oncegate.toml", cwd=tmp_path).count("00158d0001a2b3c4") == 1
