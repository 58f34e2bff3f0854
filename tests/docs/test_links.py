"""The targets of the documents' links exist."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name
from tests.support.guarantees import GUARANTEES, WHOLE_PATH, marked

FILE = re.compile(r"`((?:agent|cloud|contract|simulators|tests|docs)/[\w./-]*)(?:::\w+)?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")


def test_every_guarantee_has_its_tests() -> None:
    numbers = {int(number) for number in re.findall(r"^## (\d)\.", GUARANTEES.read_text(), flags=re.MULTILINE)}
    assert len(numbers) == 8
    assert set(marked()) == {WHOLE_PATH, *numbers}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert [file for file in FILE.findall(page.read_text()) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link[0]]
    assert [link for link, _ in links if not (page.parent / link).exists()] == []
    anchored = [(page.parent / link if link else page, anchor) for link, anchor in links if anchor]
    assert [anchor for target, anchor in anchored if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as a renderer creates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
