"""The release takes its notes from the changelog, and checks the tag against it."""

import pytest

from release.changelog import Section, check_tag, section_of
from release.errors import ReleaseError

CHANGELOG = """# Changelog

## [0.2.0] - unreleased

### Added

- One.

## [0.1.0] - 2026-11-23

- First.
"""


def test_a_section_ends_where_the_next_begins() -> None:
    assert section_of(CHANGELOG, "0.2.0") == Section("0.2.0", "unreleased", "### Added\n\n- One.\n")
    assert section_of(CHANGELOG, "0.1.0") == Section("0.1.0", "2026-11-23", "- First.\n")


@pytest.mark.parametrize("changelog", ["", CHANGELOG, "## [0.3.0] - 2026-11-23\n\n## [0.2.0] - unreleased\n- One.\n"])
def test_a_version_without_notes_is_not_released(changelog: str) -> None:
    with pytest.raises(ReleaseError, match=r"no section about 0.3.0; write `## \[0.3.0\] - DATE`"):
        section_of(changelog, "0.3.0")


@pytest.mark.parametrize(
    ("version", "tag", "reason"),
    [
        ("0.1.0", "v0.2.0", r"the tag is v0.2.0, and the version in pyproject.toml is 0.1.0; expected v0.1.0"),
        ("0.2.0", "v0.2.0", r"0.2.0 is unreleased; write the date of its release"),
    ],
)
def test_a_tag_needs_the_version_and_a_date(version: str, tag: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        check_tag(section_of(CHANGELOG, version), tag)


def test_a_tag_of_the_version_with_a_date_is_taken() -> None:
    check_tag(section_of(CHANGELOG, "0.1.0"), "v0.1.0")
