"""The packages for a Raspberry Pi, run by QEMU in a clean system of their release and processor.

systemd does not boot there: the agent is started as its unit does, by its user and its command.
"""

import os
import platform
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulators.services import ports
from simulators.services.install import programs
from simulators.services.process import Command, Process
from tests.packaging import roots
from tests.packaging.conftest import build_package
from tests.packaging.roots import PATH, Root
from tests.packaging.sensor import Sensor, ids_in

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(5_400)]
INCLUDED = "python3,adduser"
AARCH64 = 183
"""A value of ELF's e_machine."""
STATE = "/var/lib/oncegate"
START_SECONDS_MAX = 300.0
PYTHON = {"12": "311", "13": "313"}


@pytest.fixture(scope="module")
def arm64_package(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package(release, "arm64", tmp_path_factory.mktemp("dist"))


@pytest.fixture
def arm64_root(release: str, tmp_path: Path) -> Iterator[Root]:
    if not roots.may_build():
        pytest.skip("only root can make systems")
    with arm64():
        roots.build(tmp_path / "root.tar", roots.SUITES[release], INCLUDED, "arm64")
        yield roots.unpack(tmp_path / "root.tar", tmp_path / "root")
    subprocess.run(["rm", "-rf", "--one-file-system", str(tmp_path / "root")], check=True)


def agent(root: Root, folder: Path) -> Process:
    """Return the agent of the root, which is not started yet."""
    chroot = f"chroot --userspec=oncegate:oncegate {root.folder} env -i PATH={PATH} /usr/bin/oncegate run"
    script = f"mount -t proc proc {root.folder}/proc && exec {chroot}"  # it reads the boot id
    words = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
    return Process(Command("agent", words, folder / "agent.log"))


def start(process: Process) -> None:
    process.start()
    process.wait_for_log("agent=ready", START_SECONDS_MAX)


def test_it_has_the_wheels_of_its_processor_and_its_python(release: str, arm64_package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", str(arm64_package), str(tmp_path / "files")], check=True)
    objects = [file for file in (tmp_path / "files").rglob("*.so*") if file.is_file()]
    assert objects
    assert {int.from_bytes(file.read_bytes()[18:20], "little") for file in objects} == {AARCH64}
    modules = [file.name for file in objects if ".cpython-" in file.name]
    assert modules
    assert all(f".cpython-{PYTHON[release]}-" in name for name in modules)


def test_the_installed_agent_keeps_what_it_has_acked_over_a_kill(
    arm64_root: Root, arm64_package: Path, tmp_path: Path
) -> None:
    root = arm64_root
    assert root.run("uname", "-m").stdout == "aarch64\n"
    root.install(arm64_package)
    assert root.run("oncegate", "version").stdout.endswith(" compiled\n")
    root.configure()
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    roots.bind(root, coap_port, http_port)
    roots.limit_store(root)
    assert root.run("oncegate", "check").returncode == 0
    sensor = Sensor(coap_port)
    process = agent(root, tmp_path)
    try:
        start(process)
        sensor.send_until("2.04")
        process.kill()
        start(process)
        sensor.send_until("5.03", size=900)
        assert sensor.send_again(1) == "2.04"  # a duplicate needs no space
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.log()
    finally:
        process.kill()
        sensor.close()
    ids = ids_in(root.path(STATE))
    assert len(ids) == len(set(ids))
    assert sensor.acked <= set(ids)
    assert len(sensor.acked) > 1_000


_FOLDER = Path("/proc/sys/fs/binfmt_misc")
_NAME = "qemu-aarch64"
"""The name under which mmdebstrap looks for it."""
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
"""The head of an ELF file for this processor, whatever its ABI; an executable, or a shared object."""


@contextmanager
def arm64() -> Iterator[None]:
    """Register programs for arm64 with the kernel, in any root; a registration that exists is used and stays."""
    if platform.machine() == "aarch64":
        yield
        return
    qemu = programs.require("qemu-aarch64-static")
    if not (_FOLDER / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_FOLDER)], check=True)
    if (_FOLDER / _NAME).exists():
        yield
        return
    # F: the kernel opens the program now, so that roots need no copy of it.
    (_FOLDER / "register").write_text(f":{_NAME}:M::{_MAGIC}:{_MASK}:{qemu}:F")
    try:
        yield
    finally:
        (_FOLDER / _NAME).write_text("-1")
