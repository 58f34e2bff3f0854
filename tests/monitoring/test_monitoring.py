"""The alert rules and the dashboard use existing metrics, in expressions that Prometheus accepts."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.install import debian

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "monitoring"
METRIC = re.compile(r"\b(?:oncegate_[a-z_]+|up)\b(?=[{\[\s)]|$)")


def known() -> set[str]:
    """Return the metrics of the page on HTTP, which a test holds against the server's."""
    said = re.findall(r"^\| `(oncegate_\w+?)[{`]", (ROOT / "docs" / "http.md").read_text(), re.MULTILINE)
    histogram = {f"oncegate_commit_seconds_{part}" for part in ("bucket", "sum", "count")}
    return {*said, *histogram, "up", "oncegate_process_resident_memory_bytes"}


def dashboard() -> Iterator[str]:
    document = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in document["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def alerts() -> list[str]:
    return re.findall(r"^\s+expr: (.*)$", (FOLDER / "alerts.yml").read_text(), re.MULTILINE)


@pytest.mark.parametrize("expressions", [alerts(), list(dashboard())], ids=["alerts", "dashboard"])
def test_every_metric_of_an_expression_exists(expressions: list[str]) -> None:
    named = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(named) > 8
    assert named - known() == set()


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.heavy
def test_prometheus_takes_the_rules_and_they_fire_when_they_shall(tmp_path: Path) -> None:
    promtool = debian.unpack("prometheus") / "usr" / "bin" / "promtool"
    for arguments in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")):
        done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    # The dashboard's expressions as rules: so their grammar is checked, too.
    rules = [{"record": f"x:{number}", "expr": expr} for number, expr in enumerate(dashboard())]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}).replace("$instance", ".*"))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
