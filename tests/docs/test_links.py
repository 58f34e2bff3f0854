"""The targets of the documents' links exist."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name
from tests.support.collected import COLLECTED, Collected, collect
from tests.support.guarantees import GUARANTEES, LONG_RUN, named, read_named

FILE = re.compile(r"`((?:agent|cloud|contract|simulators|tests|docs)/[\w./-]*)(?:::\w+)?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
DIAGRAM_FILE = re.compile(r"(?<![\w/.-])([\w/]+\.py)\b")


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> dict[str, list[Collected]]:
    """Return all tests that the guarantees name, as pytest runs them, by file and function."""
    there = request.config.stash[COLLECTED]
    lacking = {one.name for one in read_named()} - {one.name for one in there}
    files = sorted({name.partition("::")[0] for name in lacking})
    tests = defaultdict(list)
    for test in (*there, *(collect(files) if files else ())):
        tests[test.name].append(test)
    return tests


def test_every_file_with_a_test_that_a_guarantee_names_exists() -> None:
    assert read_named()
    assert [one.name for one in read_named() if not (ROOT / one.name.partition("::")[0]).exists()] == []


def test_every_test_that_a_guarantee_names_is_collected_and_runs(collected: dict[str, list[Collected]]) -> None:
    assert [one.name for one in read_named() if not any(not test.skipped for test in collected[one.name])] == []


def test_the_guarantees_name_as_long_those_that_only_the_long_run_has(collected: dict[str, list[Collected]]) -> None:
    long = {one.name for one in read_named() if all(test.heavy for test in collected[one.name])}
    marked = {one.name for one in read_named() if one.long}
    assert sorted(long - marked) == [], f"to be marked with {LONG_RUN!r}"
    assert sorted(marked - long) == [], "they run in `make test`, too"


def test_every_guarantee_names_its_tests() -> None:
    sections = re.split(r"^## ", GUARANTEES.read_text(), flags=re.MULTILINE)[1:]
    numbered = [section for section in sections if section[0].isdigit()]
    assert len(numbered) == 8
    assert [section.splitlines()[0] for section in numbered if not named(section)] == []


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


def test_every_file_in_the_diagram_exists() -> None:
    diagram = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    gateway, cloud, back = re.split(r"^ (?:CLOUD|GATEWAY {5,}).*$", diagram, flags=re.MULTILINE)
    places = {"agent": gateway + back, "cloud": cloud}
    missing = [
        file
        for package, part in places.items()
        for file in DIAGRAM_FILE.findall(part)
        if not any((ROOT / place / file).exists() for place in (".", package))
    ]
    assert missing == []
