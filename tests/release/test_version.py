"""The version is in one place of the code, and the documents name the present one."""

import tomllib

from tests.docs.pages import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PARTS = ("agent", "cloud", "contract", "packaging", "release", "simulators", "systemd", ".github")
SUFFIXES = {".py", ".sh", ".service", ".yml", ".yaml", ".html", ".js", ".1", ""}


def test_the_version_stands_in_pyproject_only() -> None:
    files = [file for part in PARTS for file in (ROOT / part).rglob("*") if file.is_file() and file.suffix in SUFFIXES]
    assert len(files) > 200
    assert [str(file) for file in files if f'"{VERSION}"' in file.read_text(errors="replace")] == []


def test_the_documents_name_this_version() -> None:
    assert f"Version {VERSION} " in (ROOT / "README.md").read_text()
    assert f"./dist/oncegate_{VERSION}+deb13_arm64.deb" in (ROOT / "docs" / "operations.md").read_text()
