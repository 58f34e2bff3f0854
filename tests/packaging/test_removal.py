"""The scripts of the package, run in a folder in place of the system; they delete only what its agent needs no more."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.packaging import roots
from tests.packaging.roots import CHECKOUT
from tests.packaging.stores import fill_store
from tests.support import commands

STATE = "var/lib/oncegate"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    used = (STATE, "etc/oncegate/secrets", "etc/systemd/system", "usr/lib/oncegate/bin", "usr/lib/oncegate/lib", "bin")
    for folder in used:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/lib/oncegate/bin/python3").symlink_to(sys.executable)
    (tmp_path / "bin/oncegate").symlink_to(Path(sys.executable).with_name("oncegate"))
    (tmp_path / "bin/runuser").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')  # as a test's user it could not
    (tmp_path / "bin/runuser").chmod(0o755)
    name_store(tmp_path, tmp_path / STATE)
    return tmp_path


def name_store(system: Path, folder: Path) -> None:
    text = f'[gateway]\nid = "gw1"\nstate_dir = "{folder}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    (system / "etc/oncegate/oncegate.toml").write_text(text)


def run(system: Path, script: str, argument: str, *wrapper: str) -> str:
    text = (CHECKOUT / "packaging" / script).read_text()
    text = re.sub("/(?:var/lib|etc|usr/lib|run)/(?=oncegate|systemd)", rf"{system}\g<0>", text)
    configuration = f"{system}/etc/oncegate/oncegate.toml"
    environment = {"PATH": f"{system}/bin:{os.environ['PATH']}", "ONCEGATE_CONFIG": configuration}
    text = text.replace("deluser", "true").replace("adduser", "true").replace("-o oncegate -g oncegate", "")
    text = text.replace("deb-systemd-helper", "no-such-helper")
    done = commands.run(*wrapper, "sh", "-s", argument, text=text, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def remove_and_purge(system: Path) -> str:
    run(system, "prerm", "remove")
    return run(system, "postrm", "purge")


def test_a_purge_deletes_a_store_in_which_nothing_waits(system: Path) -> None:
    fill_store(system / STATE, 1, processed=True)
    assert remove_and_purge(system) == ""
    assert not (system / STATE).exists()
    assert not (system / "etc/oncegate").exists()


@pytest.mark.skipif(not roots.may_build(), reason="only root can mount")
def test_a_purge_empties_a_disk_of_the_stores_own_and_leaves_its_mount_point(system: Path) -> None:
    folder = system / STATE
    fill_store(folder, 1, processed=True)
    (folder / "lost+found").mkdir()
    mount = f'mount --bind {folder} {folder} && exec "$@"'
    run(system, "prerm", "remove")
    said = run(system, "postrm", "purge", "unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")
    assert said == f"oncegate: {folder} is a mount point: its events were removed, and the folder was kept\n"
    assert [entry.name for entry in folder.iterdir()] == ["lost+found"]
    assert not (system / "etc/oncegate").exists()


def test_a_purge_keeps_what_was_stored_after_the_removal(system: Path) -> None:
    """After the removal, `make install` may run an agent on the same folder."""
    fill_store(system / STATE, 1, processed=True)
    run(system, "prerm", "remove")
    fill_store(system / STATE, 2, processed=False)
    assert "contains undelivered events" in run(system, "postrm", "purge")
    assert (system / STATE / "events.db").exists()


@pytest.mark.parametrize("pending", [STATE, f"{STATE}/other"])
def test_a_purge_keeps_a_store_that_the_configuration_does_not_name(system: Path, pending: str) -> None:
    (named,) = {STATE, f"{STATE}/other"} - {pending}
    name_store(system, system / named)
    for folder in (STATE, f"{STATE}/other"):
        fill_store(system / folder, 1, processed=folder == named)
    remove_and_purge(system)
    assert (system / pending / "events.db").exists()


def test_a_purge_keeps_the_files_of_the_cloud_programs(system: Path) -> None:
    ours = [system / "etc/oncegate" / name for name in ("cloud.env", "cloud-secrets/kafka")]
    ours[1].parent.mkdir()
    for file in (*ours, system / "etc/oncegate/secrets/kafka"):
        file.write_text("x\n")
    remove_and_purge(system)
    assert sorted(file for file in (system / "etc/oncegate").rglob("*") if file.is_file()) == sorted(ours)


def test_a_unit_of_make_install_that_hides_that_of_the_package_is_named(system: Path) -> None:
    hiding = system / "etc/systemd/system/oncegate.service"
    hiding.write_text("[Service]\nExecStart=/usr/local/bin/oncegate run\n")
    assert f"{hiding} takes precedence over the unit of this package" in run(system, "postinst", "configure")
    hiding.unlink()
    assert run(system, "postinst", "configure") == ""
    hiding.symlink_to("/dev/null")  # the administrator's own decision: `systemctl mask`
    assert run(system, "postinst", "configure") == ""


def test_nothing_in_the_services_folder_stops_an_upgrade_or_removal_or_leads_its_writes_elsewhere(system: Path) -> None:
    fill_store(system / STATE, 1, processed=True)
    (system / STATE / ".drained").mkdir()
    run(system, "postinst", "configure")
    run(system, "prerm", "upgrade")
    run(system, "prerm", "remove")
    assert sorted(path.name for path in (system / STATE).iterdir() if ".drained" in path.name) == [".drained"]
    run(system, "postrm", "purge")
    assert [path.name for path in (system / "var/lib").iterdir()] == []


@pytest.mark.parametrize(
    ("state", "end"),
    [("active", "configure"), ("activating", "configure"), ("inactive", "configure"), ("active", "abort-upgrade")],
)
def test_an_upgrade_starts_an_agent_that_ran_before_whatever_is_found_wrong(system: Path, state: str, end: str) -> None:
    """Also one that dpkg gives up, as with a package that is cut off."""
    (system / "run/systemd/system").mkdir(parents=True)
    for program, line in (
        ("systemctl", f'[ "$1" != show ] || echo {state}'),
        ("deb-systemd-invoke", f'echo "$@" >> {system}/invoked'),
    ):
        (system / "bin" / program).write_text(f"#!/bin/sh\n{line}\n")
        (system / "bin" / program).chmod(0o755)
    with (system / "etc/oncegate/oncegate.toml").open("a") as file:
        file.write("topci = 'x'\n")
    run(system, "prerm", "upgrade")
    said = run(system, "postinst", end)
    started = "restart oncegate.service" in (system / "invoked").read_text()
    assert (started, "did you mean topic?" in said) == (state != "inactive", True)
    assert not list((system / "run").glob("oncegate*"))
