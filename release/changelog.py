"""The changelog's section of a version: the notes of its release."""

import re
from dataclasses import dataclass

from release.errors import ReleaseError


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one version in the changelog."""

    version: str
    date: str
    """As YYYY-MM-DD, or `unreleased`."""
    body: str


def section_of(changelog: str, version: str) -> Section:
    """Return a version's section; raise ReleaseError where there is none, or where it is empty."""
    headings = list(re.finditer(r"^## \[([^\]]+)\] - (\S+)$", changelog, re.MULTILINE))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    for heading, end in zip(headings, ends, strict=False):
        if heading[1] == version:
            body = changelog[heading.end() : end].strip()
            if not body:
                break
            return Section(version, heading[2], body + "\n")
    raise ReleaseError(f"CHANGELOG.md: no section about {version}; write `## [{version}] - DATE` and what has changed")


def check_tag(section: Section, tag: str) -> None:
    """Check that the tag names the section's version, and that the section has a date."""
    if tag != f"v{section.version}":
        raise ReleaseError(
            f"the tag is {tag}, and the version in pyproject.toml is {section.version}; expected v{section.version}"
        )
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", section.date):
        raise ReleaseError(f"CHANGELOG.md: {section.version} is {section.date}; write the date of its release")
