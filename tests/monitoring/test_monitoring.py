"""The alert rules are tested and explained, and Prometheus accepts them."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import output_of
from tests.support.debian_package import unpack

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "monitoring"
METRIC = re.compile(r"\b(?:oncegate_[a-z_]+|up)\b(?=[{\[\s)]|$)")


@dataclass(frozen=True, slots=True)
class Monitored:
    """A program: the names of its rules and its dashboard."""

    rules: str
    dashboard: str

    def queries(self) -> Iterator[str]:
        for panel in json.loads((FOLDER / f"{self.dashboard}.json").read_text())["panels"]:
            yield from (target["expr"] for target in panel["targets"])

    def alerts(self) -> list[str]:
        return re.findall(r"^\s+expr: (.*)$", (FOLDER / f"{self.rules}.yml").read_text(), re.MULTILINE)


GATEWAY, JOB = Monitored("alerts", "dashboard"), Monitored("job-alerts", "job-dashboard")
each = pytest.mark.parametrize("monitored", [GATEWAY, JOB], ids=["gateway", "job"])


@each
def test_each_alert_is_among_those_that_are_tested(monitored: Monitored) -> None:
    rules = re.findall(r"alert: (\w+)", (FOLDER / f"{monitored.rules}.yml").read_text())
    tested = set(re.findall(r"alertname: (\w+)", (FOLDER / f"{monitored.rules}.test.yml").read_text()))
    assert set(rules) - tested == set()


def test_each_alert_has_a_section_of_the_runbook_and_a_link_to_it() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    links = [
        pair
        for monitored in (GATEWAY, JOB)
        for pair in re.findall(
            r"alert: (\w+)\n(?: {8,}.*\n)*? {10}runbook_url: \"docs/runbook\.md#(\w+)\"",
            (FOLDER / f"{monitored.rules}.yml").read_text(),
        )
    ]
    assert [(name, name.lower()) for name in sections] == links
    assert links


@pytest.mark.heavy
@each
def test_prometheus_takes_the_rules_and_they_fire_when_they_shall(monitored: Monitored, tmp_path: Path) -> None:
    promtool = unpack("prometheus") / "usr" / "bin" / "promtool"
    for arguments in (("check", "rules", f"{monitored.rules}.yml"), ("test", "rules", f"{monitored.rules}.test.yml")):
        output_of(promtool, *arguments, cwd=FOLDER)
    (tmp_path / "prometheus.yml").write_text((FOLDER / "prometheus.yml").read_text())
    for file in FOLDER.glob("*alerts.yml"):
        shutil.copy(file, tmp_path)
    output_of(promtool, "check", "config", "--syntax-only", tmp_path / "prometheus.yml")
