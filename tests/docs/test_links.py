"""What the documents point at is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name

GUARANTEES = ROOT / "docs" / "guarantees.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FILE = re.compile(r"`((?:agent|cloud|contract|simulators|tests|docs)/[\w./-]*)(?:::\w+)?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
DIAGRAM_FILE = re.compile(r"(?<![\w/.-])([\w/]+\.py)\b")


@cache
def functions(file: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = TEST.findall(GUARANTEES.read_text())
    assert named
    assert [f"{file}::{test}" for file, test in named if test not in functions(ROOT / file)] == []


def test_every_guarantee_names_its_tests() -> None:
    sections = re.split(r"^## ", GUARANTEES.read_text(), flags=re.MULTILINE)[1:]
    numbered = [section for section in sections if section[0].isdigit()]
    assert len(numbered) == 7
    assert [section.splitlines()[0] for section in numbered if not TEST.search(section)] == []


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
    """Give the anchors that a renderer makes of the headings."""
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
