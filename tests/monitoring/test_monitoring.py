"""The alert rules and the dashboards use existing metrics, in expressions that Prometheus accepts."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian_package import unpack

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "monitoring"
METRIC = re.compile(r"\b(?:oncegate_[a-z_]+|up)\b(?=[{\[\s)]|$)")


@dataclass(frozen=True, slots=True)
class Monitored:
    """A program: the names of its rules and its dashboard, and the page that lists its metrics."""

    rules: str
    dashboard: str
    page: str
    histograms: tuple[str, ...]
    others: frozenset[str] = frozenset()

    def known(self) -> set[str]:
        """Return the metrics of the page, which a test compares with those of the program."""
        page = (ROOT / "docs" / self.page).read_text()
        listed = re.findall(r"^\| `(oncegate_\w+?)[{`]", page, re.MULTILINE)
        parts = {f"{name}_{part}" for name in self.histograms for part in ("bucket", "sum", "count")}
        return {*listed, *parts, *self.others, "up"}

    def panels(self) -> list[dict[str, object]]:
        panels: list[dict[str, object]] = json.loads((FOLDER / f"{self.dashboard}.json").read_text())["panels"]
        return panels

    def queries(self) -> Iterator[str]:
        """Yield the expressions of the dashboard."""
        for panel in self.panels():
            assert isinstance(panel["targets"], list)
            yield from (target["expr"] for target in panel["targets"])

    def alerts(self) -> list[str]:
        """Return the expressions of the alerts."""
        return re.findall(r"^\s+expr: (.*)$", (FOLDER / f"{self.rules}.yml").read_text(), re.MULTILINE)


GATEWAY = Monitored(
    *("alerts", "dashboard", "http.md", ("oncegate_commit_seconds",)),
    frozenset({"oncegate_process_resident_memory_bytes"}),
)
JOB = Monitored(
    *("job-alerts", "job-dashboard", "cloud.md"), ("oncegate_cloud_batch_seconds", "oncegate_cloud_receipt_age_seconds")
)
each = pytest.mark.parametrize("monitored", [GATEWAY, JOB], ids=["gateway", "job"])


@each
def test_every_metric_of_an_expression_exists(monitored: Monitored) -> None:
    for expressions in (monitored.alerts(), list(monitored.queries())):
        named = {name for expression in expressions for name in METRIC.findall(expression)}
        assert len(named) > 5
        assert named - monitored.known() == set()


@pytest.mark.parametrize("dashboard", sorted(file.stem for file in FOLDER.glob("*dashboard.json")))
def test_panels_have_places_of_their_own(dashboard: str) -> None:
    taken = []
    panels = json.loads((FOLDER / f"{dashboard}.json").read_text())["panels"]
    for panel in panels:
        place = panel["gridPos"]
        assert isinstance(place, dict)
        columns = range(place["x"], place["x"] + place["w"])
        taken += [(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


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
        done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "prometheus.yml").write_text((FOLDER / "prometheus.yml").read_text())
    for file in FOLDER.glob("*alerts.yml"):
        shutil.copy(file, tmp_path)
    command = [str(promtool), "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The dashboard's expressions as rules: so their grammar is checked, too.
    rules = [{"record": f"x:{number}", "expr": expr} for number, expr in enumerate(monitored.queries())]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}).replace("$instance", ".*"))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
