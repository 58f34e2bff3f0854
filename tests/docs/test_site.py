"""The documentation site is built without warnings, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

BUILD_SECONDS_MAX = 240


def build(site: Path, configuration: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site), "--config-file"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, str(configuration)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=BUILD_SECONDS_MAX,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = [
        (page.name, element)
        for page in site.rglob("*.html")
        for element in re.findall(
            r'<(?:script|img|iframe|source|link)\b[^>]*(?:src|href)="(?:https?:)?//[^>]*>', page.read_text()
        )
    ]
    assert loaded == []


def test_the_order_is_tutorial_how_to_reference_explanation(site: Path) -> None:
    tabs = re.findall(r'md-tabs__link">\s*([\w-]+)\s*<', (site / "index.html").read_text())
    assert tabs == ["Tutorial", "How-to", "Reference", "Explanation"]


def test_steps_with_code_are_one_list(site: Path) -> None:
    section = (site / "operations.html").read_text().partition('id="send-a-first-event"')[2].partition("<h2")[0]
    assert section.count("<ol>") == 1
    assert len(re.findall(r"^<li>", section, re.MULTILINE)) == 4


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[there](nowhere.md)\n")
    text = (ROOT / "mkdocs.yml").read_text().partition("nav:")[0].replace("hooks: [release/site.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(text)
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert "nowhere.md" in done.stdout + done.stderr
