"""The gateway's environment is built beside the old one: neither a failure nor a wrong place costs a file."""

import os
import re
import shutil
import sys
import venv
from pathlib import Path

import pytest

from tests.packaging.roots import CHECKOUT
from tests.support.commands import Completed, output_of, run


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Create an environment in place of the installed agent."""
    folder = tmp_path / "opt" / "oncegate"
    venv.create(folder)
    with (folder / "pyvenv.cfg").open("a") as file:
        file.write("made-by = oncegate\n")
    (folder / "bin" / "oncegate").write_text("the installed agent\n")
    return folder


def build(folder: Path | str, checkout: Path = CHECKOUT, cwd: Path = CHECKOUT, **environment: str) -> Completed:
    script = checkout / "packaging" / "environment.sh"
    return run("sh", script, folder, folder, "x86_64", cwd=cwd, environment=environment)


def agent(folder: Path) -> str:
    return (folder / "bin" / "oncegate").read_text()


@pytest.mark.parametrize("name", ["gateway", "cloud", "development"])
def test_what_is_installed_with_checksums_has_the_pinned_versions(name: str) -> None:
    pins = pinned((CHECKOUT / "constraints.txt").read_text())
    text = (CHECKOUT / "packaging" / f"{name}.txt").read_text()
    found = pinned(text)
    assert found.items() <= {**pins, "pip": found.get("pip")}.items()
    if name == "development":
        assert not pins.keys() - found.keys()
    assert all(
        re.search(r"--hash=sha256:\w{64}", entry) for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    )


def pinned(text: str) -> dict[str, str]:
    """Return the version of each package, by its normalized name (PEP 503)."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", text, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.heavy
def test_a_package_with_another_checksum_is_refused(installed: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT / "packaging", checkout / "packaging")
    pins = checkout / "packaging" / "gateway.txt"
    line = re.compile(r"(h11==\S+ )(?:\\\n +--hash=sha256:\w{64} ?)+")
    altered, count = line.subn(lambda found: f"{found[1]}--hash=sha256:{'0' * 64}", pins.read_text())
    assert count == 1
    pins.write_text(altered)
    done = build(installed, checkout, WHEEL=str(_wheel(tmp_path)))
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert f"{installed} was not changed" in done.stderr
    assert agent(installed) == "the installed agent\n"
    assert [entry.name for entry in installed.parent.iterdir()] == ["oncegate"]


def _wheel(folder: Path) -> Path:
    """Build our own wheel, in its pure form."""
    environment = {"ONCEGATE_COMPILE": "0", "PIP": f"{sys.executable} -m pip"}
    return Path(output_of("sh", CHECKOUT / "packaging" / "wheel.sh", folder, environment=environment).strip())


@pytest.mark.parametrize("below", ["checkout", "lib/checkout"])
def test_a_checkout_inside_the_place_is_refused_and_kept(installed: Path, below: str) -> None:
    checkout = installed / below
    (checkout / "packaging").mkdir(parents=True)
    (checkout / "work.txt").write_text("uncommitted\n")
    script = checkout / "packaging" / "environment.sh"
    script.write_bytes((CHECKOUT / "packaging" / "environment.sh").read_bytes())

    done = build(installed, checkout)

    assert done.returncode == 1
    assert f"{installed} contains this checkout; nothing was changed." in done.stderr
    assert (checkout / "work.txt").read_text() == "uncommitted\n"
    assert agent(installed) == "the installed agent\n"


@pytest.mark.parametrize("place", ["", ".new", ".old"])
@pytest.mark.parametrize("is_environment", [False, True])
def test_what_is_somebody_elses_is_refused_and_kept(tmp_path: Path, place: str, *, is_environment: bool) -> None:
    other = tmp_path / f"oncegate{place}"
    if is_environment:
        venv.create(other)
    (other / "lib").mkdir(parents=True, exist_ok=True)
    (other / "lib" / "precious").write_text("mine\n")
    done = build(tmp_path / "oncegate")
    assert done.returncode == 1
    assert f"{other} is not an environment of Oncegate" in done.stderr
    assert (other / "lib" / "precious").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("{}/oncegate/", "a slash at its end"),
        ("{}/other/../oncegate", "a slash at its end"),
        ("{}//oncegate", "a slash at its end"),
        ("{}/my agent", "a path may contain letters"),
        ("relative/oncegate", "is not an absolute path"),
        ("/", "a slash at its end"),
    ],
)
def test_a_path_that_would_not_work_is_refused_before_anything_is_made(
    tmp_path: Path, folder: str, reason: str
) -> None:
    done = build(folder.format(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "oncegate").symlink_to(tmp_path / "real")
    assert "is a symbolic link" in build(tmp_path / "oncegate").stderr


def test_a_replacement_that_was_interrupted_is_undone(installed: Path) -> None:
    installed.rename(installed.with_name("oncegate.old"))
    done = build(installed, PYTHON="/nonexistent/python3")
    assert done.returncode != 0
    assert agent(installed) == "the installed agent\n"


def test_a_missing_interpreter_is_named_and_nothing_is_changed(installed: Path) -> None:
    done = build(installed, PYTHON="/nonexistent/python3")
    assert done.returncode == 1
    assert "/nonexistent/python3 is missing, or older than 3.11" in done.stderr
    assert f"{installed} was not changed" in done.stderr
    assert [entry.name for entry in installed.parent.iterdir()] == ["oncegate"]


@pytest.mark.parametrize("place", [".new", ".old"])
def test_what_an_interrupted_removal_has_left_is_removed_by_the_next_one(
    installed: Path, tmp_path: Path, place: str
) -> None:
    left = installed.with_name(f"oncegate{place}")
    shutil.copytree(installed, left, symlinks=True)
    interrupted = tmp_path / "bin" / "rm"
    interrupted.parent.mkdir()
    interrupted.write_text(
        "#!/bin/sh\n# Remove the mark of an environment first, and then fail.\n"
        'for path; do if [ -e "$path/pyvenv.cfg" ]; then /bin/rm "$path/pyvenv.cfg"; exit 1; fi; done\n'
        'exec /bin/rm "$@"\n'
    )
    interrupted.chmod(0o755)

    build(installed, PATH=f"{interrupted.parent}:{os.environ['PATH']}", PYTHON="/nonexistent/python3")
    assert left.exists()
    done = build(installed, PYTHON="/nonexistent/python3")

    assert "is not an environment of Oncegate" not in done.stderr
    assert not left.exists()
    assert agent(installed) == "the installed agent\n"


def test_a_folder_whose_mark_was_not_yet_written_is_no_hindrance(installed: Path) -> None:
    begun = installed.with_name("oncegate.new")
    begun.mkdir()
    (begun / "pyvenv.cfg").touch()
    assert "is not an environment of Oncegate" not in build(installed, PYTHON="/nonexistent/python3").stderr
    assert not begun.exists()
