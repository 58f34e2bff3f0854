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
    return re.findall(rf"```sql\n-- {language}\n(.*?);?\n```", section(title), re.DOTALL)


def command(title: str) -> JobSettings:
    [line] = re.findall(r"^oncegate-cloud job (.*)$", section(title), re.MULTILINE)
    return settings.parse(shlex.split(line))
