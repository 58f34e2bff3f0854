"""The Debian package: built, checked, installed, upgraded, removed and purged in a clean system."""

import os
import re
import shutil
from pathlib import Path

import pytest

from agent.cli.manual import pages as manual_pages
from simulators.services.install import programs
from tests.packaging.conftest import version_up
from tests.packaging.roots import CHECKOUT, Root
from tests.packaging.stores import fill_store
from tests.support.commands import output_of

pytestmark = pytest.mark.heavy
INSTALLED_MEGABYTES_MAX = 75
STATE = "/var/lib/oncegate"
UNUSED = """
import importlib, pathlib, pkgutil, sys, sysconfig
import agent, contract, aiocoap.oscore, sqlite_utils.cli
for package in (agent, contract):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
used = {name.partition(".")[0] for name in sys.modules} | {"confluent_kafka.libs"}
for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
    name = entry.name.partition(".")[0] if entry.is_file() else entry.name
    if name not in used and name != "__pycache__" and entry.suffix != ".dist-info":
        print(name)
"""
"""Imports all modules of the agent, and prints what is installed beside them and was not imported."""


def fill(root: Root) -> None:
    """Create a store of two events, owned by the installed agent's user."""
    fill_store(root.path(STATE), 1, processed=False)
    root.run("chown", "-R", "oncegate:oncegate", STATE)


def events(root: Root) -> list[str]:
    return root.run("oncegate", "events").stdout.splitlines()


def test_lintian_finds_no_error(package: Path) -> None:
    output_of(programs.require("lintian"), "--fail-on", "error", "--allow-root", package)


def test_it_installs_and_asks_for_what_has_no_default(package: Path, root: Root) -> None:
    said = root.install(package)
    assert "edit /etc/oncegate/oncegate.toml" in said
    assert re.fullmatch(r"oncegate \S+ compiled\n", root.run("oncegate", "version").stdout)
    missing = root.run("oncegate", "check", check=False)
    assert (missing.returncode, "[gateway] id: missing" in missing.stderr) == (2, True)
    root.configure()
    assert root.run("oncegate", "check").stdout == "/etc/oncegate/oncegate.toml: fine\n"
    wants = root.path("/etc/systemd/system/multi-user.target.wants/oncegate.service")
    assert wants.is_symlink()
    state, secrets = root.path(STATE).stat(), root.path("/etc/oncegate/secrets").stat()
    assert (oct(state.st_mode)[-3:], oct(secrets.st_mode)[-3:], secrets.st_uid) == ("750", "700", 0)
    assert state.st_uid != 0
    pages = root.path("/usr/share/man/man1").glob("oncegate*.1.gz")
    assert {page.name for page in pages} == {f"{name}.gz" for name in manual_pages()}
    assert root.path("/usr/share/bash-completion/completions/oncegate").is_file()
    assert root.path("/usr/share/zsh/vendor-completions/_oncegate").is_file()
    size = sum(os.lstat(file).st_size for file in root.path("/usr/lib/oncegate").rglob("*"))
    assert size <= INSTALLED_MEGABYTES_MAX * 10**6


def test_everything_in_the_environment_is_used_and_pip_is_not_there(package: Path, root: Root) -> None:
    root.install(package)
    assert root.run("/usr/lib/oncegate/bin/python3", "-I", "-c", UNUSED).stdout == ""
    assert root.run("/usr/lib/oncegate/bin/python3", "-I", "-m", "pip", check=False).returncode != 0


def test_an_upgrade_keeps_the_store_and_the_configuration(package: Path, root: Root, tmp_path: Path) -> None:
    root.install(package)
    root.configure("# ours\n")
    fill(root)
    before = events(root)
    root.install(version_up(package, tmp_path), "--force-confdef", "--force-confold")
    assert "9." in root.run("dpkg-query", "-W", "oncegate").stdout
    assert root.path("/etc/oncegate/oncegate.toml").read_text().endswith("# ours\n")
    assert events(root) == before
    assert len(before) == 2


@pytest.mark.parametrize("told", [False, True])
def test_a_purge_keeps_what_was_not_processed_unless_told(package: Path, root: Root, *, told: bool) -> None:
    root.install(package)
    root.configure()
    fill(root)
    root.run("dpkg", "-r", "oncegate")
    done = root.run("dpkg", "-P", "oncegate", environment={"ONCEGATE_PURGE": "all"} if told else {})
    assert root.path(STATE).exists() is not told
    assert ("contains undelivered events" in done.stderr) is not told
    assert not root.path("/etc/oncegate").exists()
    if not told:
        root.install(package)
        root.configure()
        assert len(events(root)) == 2


def test_a_store_that_cannot_be_read_is_never_purged(package: Path, root: Root) -> None:
    root.install(package)
    root.configure()
    root.path(STATE).joinpath("events.db").write_bytes(b"damaged " * 4096)
    root.run("dpkg", "-P", "oncegate")
    assert root.path(STATE).joinpath("events.db").exists()


def test_make_install_from_a_checkout_makes_a_gateway(root: Root) -> None:
    skipped = shutil.ignore_patterns(".git", ".venv", "build", "dist", ".*_cache", ".hypothesis", "__pycache__")
    shutil.copytree(CHECKOUT, root.path("/root/checkout"), ignore=skipped, symlinks=True)
    # The variables that this machine needs to download packages; the system itself does not have them.
    names = ("PIP_", "SSL_CERT", "REQUESTS_CA", "HTTP", "http", "no_proxy")
    fetching = {name: value for name, value in os.environ.items() if name.startswith(names)}
    for place in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf"):
        if Path(place).exists():
            root.path(place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, root.path(place))
    said = root.run("sh", "/root/checkout/packaging/install.sh", environment=fetching).stdout
    assert "edit /etc/oncegate/oncegate.toml" in said
    root.configure()
    assert root.run("oncegate", "check").returncode == 0
    unit = root.path("/etc/systemd/system/oncegate.service").read_text()
    assert "ExecStart=/usr/local/bin/oncegate run" in unit
    again = root.run("sh", "/root/checkout/packaging/install.sh", environment=fetching).stdout
    assert "install: done; next: sudo oncegate doctor" in again
    root.run("sh", "/root/checkout/packaging/install.sh", "remove")
    assert sorted(root.path("/usr/local").rglob("*oncegate*")) == []
    assert not root.path("/opt/oncegate").exists()
    assert root.path("/etc/oncegate/oncegate.toml").exists()
