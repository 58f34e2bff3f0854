"""The documents of an installation: no link leads to a file that was not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.docs.test_links import LINK
from tests.packaging.roots import CHECKOUT


def test_each_link_of_an_installed_document_leads_to_an_installed_file(tmp_path: Path) -> None:
    subprocess.run(["sh", CHECKOUT / "packaging" / "documents.sh", tmp_path], check=True)
    pages = sorted(tmp_path.rglob("*.md"))
    links = [(page, link) for page in pages for link, _ in LINK.findall(page.read_text()) if "://" not in link]
    assert (tmp_path / "README.md") in pages
    assert (tmp_path / "README.md", "LICENSE") in links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
