import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.support.commands import output_of

FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
FORMS = sorted(file for file in (FORGE / "ISSUE_TEMPLATE").glob("*.yml") if file.stem != "config")


def steps(file: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(file.read_text())["jobs"].values():
        yield from job["steps"]


def commands() -> Iterator[str]:
    for file in WORKFLOWS:
        for step in steps(file):
            for line in step.get("run", "").splitlines():
                yield from (part.strip() for part in line.split("&&"))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("compose-spec", [ROOT / "packaging" / "container" / "compose.yaml"]),
    ],
)
def test_each_file_has_the_form_that_its_reader_expects(schema: str, files: list[Path]) -> None:
    assert files
    output_of(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_no_value_of_an_event_is_part_of_a_script() -> None:
    """A tag or a branch may have any characters; as a variable it can run nothing."""
    assert [command for command in commands() if "${{ github" in command] == []


def test_each_action_is_named_by_its_commit() -> None:
    """A tag may be moved to other code, which would run with the rights of the workflow."""
    used = [step["uses"] for file in WORKFLOWS for step in steps(file) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []
