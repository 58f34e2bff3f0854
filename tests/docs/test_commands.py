"""docs/operations.md lists the commands that there are."""

import re

from agent.cli.commands import COMMANDS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "operations.md"


def test_the_commands_of_the_page_are_those_of_the_program() -> None:
    section = PAGE.read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(COMMANDS)
