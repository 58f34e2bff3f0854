import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cloud.jars import download, ivy, java
from cloud.jars.coordinates import Coordinates, Jar, JarError, parse_coordinates

GOOD = b"the bytes that were pinned"
COORDINATES = Coordinates("org.example", "part", "1.0")
JAR = Jar(COORDINATES, hashlib.sha256(GOOD).hexdigest())


class Shelf:
    """Provides jars from memory, and counts the downloads."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.runs = 0

    def __call__(
        self, wanted: Sequence[Coordinates], folder: Path, *, on_jar: Callable[[], None]
    ) -> Mapping[Coordinates, Path]:
        self.runs += 1
        fetched = {jar: folder / jar.file_name for jar in wanted}
        for file in fetched.values():
            file.write_bytes(self.content)
            on_jar()
        return fetched


NOBODY = 65534


def test_a_home_that_a_service_may_not_see_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ProtectHome=yes a unit sees no home, not even that of its own user."""
    home, user = tmp_path / "home", os.geteuid()
    home.mkdir(mode=0)
    monkeypatch.setenv("HOME", str(home / "oncegate-cloud"))
    os.seteuid(NOBODY if user == 0 else user)  # root would see it
    try:
        assert ivy.settings({}) is None
    finally:
        os.seteuid(user)


def test_a_jar_with_a_wrong_checksum_is_refused_and_removed(tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"org\.example:part:1\.0: refused and removed"):
        download.ensure([JAR], tmp_path, fetch=Shelf(b"other bytes"))

    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_jar_is_fetched_once(tmp_path: Path) -> None:
    shelf = Shelf(GOOD)

    first = download.ensure([JAR], tmp_path, fetch=shelf)
    second = download.ensure([JAR], tmp_path, fetch=shelf)

    assert first == second
    assert first[0].read_bytes() == GOOD
    assert shelf.runs == 1


def test_all_jars_of_a_module_are_asked_for_together() -> None:
    """Of two dependencies on one module Ivy takes the jar of one alone."""
    wanted = [parse_coordinates(name) for name in ("g:a:1", "g:a:1:tests", "g:b:1")]
    assert [(str(one), one.file_name) for one in wanted[1:]] == [("g:a:1:tests", "a-1-tests.jar"), ("g:b:1", "b-1.jar")]
    both, other = ET.fromstring(ivy._describe(wanted, None)).iter("dependency")
    assert [sorted(one.attrib.values()) for one in both] == [["a", "jar"], ["a", "jar", "tests"]]
    assert (other.get("name"), len(other)) == ("b", 0)


def test_a_jar_that_was_not_fetched_is_named(tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"org\.example:part:1\.0: was not fetched"):
        download.ensure([JAR], tmp_path, fetch=lambda *_, **__: {})


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = _runtime(tmp_path / "old", "1.8.0_392")
    new = _runtime(tmp_path / "new", "21.0.1")

    found = java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")})

    assert found == new / "bin" / "java"


def _runtime(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return folder
