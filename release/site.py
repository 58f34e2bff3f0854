"""Hooks of MkDocs (mkdocs.yml): pages from outside docs/, and the lists of GitHub's Markdown."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DECISIONS = "decisions"
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the root folder, with their names on the site."""
FILES = {"LICENSE": "LICENSE", "release/site.css": "site.css", "agent/http/page_files/icon.svg": "icon.svg"}
"""Other files of the repository, with their names on the site."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MARKER = re.compile(r"(\s*)(?:[-*]|\d+\.)\s+(?=\S)")
_FENCE = re.compile(r"\s*```")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add all decisions to the navigation, in the place of their folder's name."""
    names = sorted(path.name for path in (ROOT / "docs" / DECISIONS).glob("*.md"))
    config.nav = _with_decisions(config.nav, [f"{DECISIONS}/{name}" for name in names])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root folder."""
    for name, place in PAGES.items():
        files.append(File.generated(config, place, content=_links((ROOT / name).read_text(), _from_root)))
    for name, place in FILES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    listed = [f"- [{_title(path)}]({path.name})" for path in sorted((ROOT / "docs" / DECISIONS).glob("*.md"))]
    content = "# Decisions\n\n" + "\n".join(listed) + "\n"
    files.append(File.generated(config, f"{DECISIONS}/index.md", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as Python-Markdown needs it."""
    return "\n".join(_lists(_links(markdown, _from_docs).splitlines()))


def _with_decisions(nav: Any, pages: Sequence[str]) -> Any:
    if isinstance(nav, list):
        return [_with_decisions(entry, pages) for entry in nav]
    if isinstance(nav, dict):
        return {title: _with_decisions(entry, pages) for title, entry in nav.items()}
    return [f"{DECISIONS}/index.md", *pages] if nav == DECISIONS else nav


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def _links(text: str, moved: Any) -> str:
    return _LINK.sub(lambda link: f"]({moved(link[1])})", text)


def _from_root(link: str) -> str:
    name, anchor, place = link.partition("#")
    name = f"{DECISIONS}/index.md" if name == f"docs/{DECISIONS}/" else PAGES.get(name, name.removeprefix("docs/"))
    return name + anchor + place


def _from_docs(link: str) -> str:
    """Return a link of a page in docs/, whose pages of the root folder are beside it on the site."""
    if link == f"{DECISIONS}/":
        return f"{DECISIONS}/index.md"
    name, anchor, place = link.partition("#")
    return PAGES.get(name.removeprefix("../"), name) + anchor + place if name.startswith("../") else link


def _lists(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with an empty one before each list, and with what belongs to an item indented by four."""
    width, in_fence, before = 0, False, ""
    for line in lines:
        marker = None if in_fence else _MARKER.match(line)
        indent = len(line) - len(line.lstrip())
        if marker is not None and not marker[1]:
            if before.strip() and not width:
                yield ""
            width = len(marker[0])
        elif line.strip() and indent < 2 and not in_fence:
            width = 0
        if _FENCE.match(line):
            in_fence = not in_fence
        before = line
        yield " " * 4 + line[width:] if width and indent >= width else line
