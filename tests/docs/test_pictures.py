"""The pictures of the README show the pages as they are."""

import json
import re
from pathlib import Path

import pytest

from simulators.demo import pictures
from simulators.services.install import programs
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", pictures.SOURCES)
def test_a_picture_is_as_new_as_the_page_that_it_shows(name: str) -> None:
    taken = json.loads(pictures.SOURCES_FILE.read_text())[name]
    assert taken == pictures.digests(name), f"run: make pictures ONLY={name}"


def test_the_readme_shows_the_pictures_with_a_description() -> None:
    shown = re.findall(r"!\[([^\]]+)\]\((docs/pictures/\S+\.png)\)", (ROOT / "README.md").read_text())
    assert {file for _, file in shown} == {f"docs/pictures/{name}.png" for name in pictures.SOURCES}
    assert all((ROOT / file).read_bytes().startswith(b"\x89PNG") for _, file in shown)


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
