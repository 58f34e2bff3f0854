"""The procedures of docs/table.md: their statements and commands."""

import re
import shlex

from cloud import settings
from cloud.settings import JobSettings
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "table.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n### {title}\n")[2].partition("\n### ")[0]


def statements(title: str, language: str) -> list[str]:
    """Return the statements of a procedure for Delta or for PostgreSQL; one that names neither is for both."""
    found = re.findall(r"```sql\n(?:-- (\w+)\n)?(.*?);?\n```", section(title), re.DOTALL)
    given = [statement for named, statement in found if named in ("", language)]
    return given if language == "Delta" else [re.sub(r"delta\.`/srv/oncegate/(\w+)`", r"\1", one) for one in given]


def command(title: str) -> JobSettings:
    [line] = re.findall(r"^oncegate-cloud job (.*)$", section(title), re.MULTILINE)
    return settings.parse(shlex.split(line))
