"""The pictures of the documents show the pages as they are."""

import json
import re
from pathlib import Path

import pytest

from simulators.demo import pictures
from simulators.services.install import programs
from tests.docs.pages import ROOT

BYTES_MAX = 150_000


@pytest.mark.parametrize("name", pictures.SOURCES)
def test_a_picture_is_as_new_as_the_page_that_it_shows(name: str) -> None:
    taken = json.loads(pictures.SOURCES_FILE.read_text())[name]
    assert taken == pictures.digests(name), f"run: make pictures ONLY={name}"


def test_the_readme_shows_the_pictures_with_a_description() -> None:
    assert shown("README.md") == {f"docs/pictures/{name}.png" for name in ("report", "status")}


def test_pictures_are_small() -> None:
    for file in pictures.FOLDER.rglob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size <= BYTES_MAX, file


def shown(page: str) -> set[str]:
    """Return the pictures of a page; each has a description."""
    return {file for _, file in re.findall(r"!\[([^\]]+)\]\(([^)\s]*pictures/\S+\.png)\)", (ROOT / page).read_text())}


@pytest.mark.heavy
@pytest.mark.kafka
def test_the_command_takes_the_picture_of_the_status_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.require("chromium")
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    monkeypatch.setattr(pictures, "READING_SECONDS", 0.1)
    monkeypatch.setattr(pictures, "SOURCES_FILE", tmp_path / "sources.json")
    monkeypatch.setattr("sys.argv", ["pictures", "--only", "status"])
    assert pictures.main() == 0
    assert (tmp_path / "status.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "sources.json").read_text())["status"] == pictures.digests("status")
