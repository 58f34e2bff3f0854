"""`make install`, of which two do not mix, and `make uninstall`, which removes what it installed and nothing else."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.packaging.roots import CHECKOUT
from tests.support.commands import Completed, run
from tests.support.waiting import wait_until

INSTALL = ("sh", str(CHECKOUT / "packaging" / "install.sh"))

OURS = (
    "etc/systemd/system/oncegate.service",
    "opt/oncegate/bin/oncegate",
    "usr/local/bin/oncegate",
    "usr/local/share/bash-completion/completions/oncegate",
    "usr/local/share/doc/oncegate/docs/operations.md",
    "usr/local/share/man/man1/oncegate.1",
    "usr/local/share/man/man1/oncegate-send.1",
    "usr/local/share/zsh/site-functions/_oncegate",
)
KEPT = (
    "etc/oncegate/oncegate.toml",
    "etc/oncegate/secrets/kafka",
    "etc/systemd/system/oncegate.service.d/ours.conf",
    "opt/another/file",
    "usr/local/share/man/man1/another.1",
    "var/lib/oncegate/events.db",
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with what an installation has, and with what belongs to others."""
    for name in (*OURS, *KEPT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "opt/oncegate/pyvenv.cfg").write_text("home = /usr/bin\nmade-by = oncegate\n")
    return tmp_path


def remove(root: Path) -> Completed:
    return run(*INSTALL, "remove", environment={"DESTDIR": str(root)})


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_configuration_secrets_and_store_are_kept(installed: Path) -> None:
    done = remove(installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(installed) == set(KEPT)
    assert not (installed / "opt/oncegate").exists()
    assert remove(installed).returncode == 0  # there is nothing left to remove


def test_an_environment_of_somebody_else_is_refused_and_nothing_is_removed(installed: Path) -> None:
    (installed / "opt/oncegate/pyvenv.cfg").write_text("home = /usr/bin\n")
    before = files(installed)
    done = remove(installed)
    assert done.returncode == 1
    assert "is not an environment of Oncegate; nothing was removed" in done.stderr
    assert files(installed) == before


def test_of_two_installations_at_once_the_second_changes_nothing(tmp_path: Path) -> None:
    gate, arrived = tmp_path / "gate", tmp_path / "arrived"
    os.mkfifo(gate)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {arrived}\nread line < {gate}\nexit 1\n")
    python.chmod(0o755)
    environment = {**os.environ, "DESTDIR": str(tmp_path / "root"), "PYTHON": str(python)}
    with subprocess.Popen(INSTALL, env=environment, stderr=subprocess.DEVNULL):
        wait_until(arrived.exists, "the first installation works")
        before = sorted((tmp_path / "root").rglob("*"))
        second = run(*INSTALL, environment=environment)
        after = sorted((tmp_path / "root").rglob("*"))
        gate.write_text("go\n")
    assert second.returncode == 1
    assert "another installation" in second.stderr
    assert before == after
    arrived.unlink()
    with subprocess.Popen(INSTALL, env=environment, stderr=subprocess.DEVNULL):
        wait_until(arrived.exists, "a later installation works")
        gate.write_text("go\n")
