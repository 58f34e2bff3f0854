"""The report in a browser: light, dark, and at the width of a phone."""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contract.event import Event
from simulators.judge.remote import judge_remote_run
from simulators.judge.sink import Sink
from simulators.ledger import Ledger
from simulators.report import page
from simulators.report.page import Arrivals
from simulators.services.install import programs
from tests.simulators.oracle.delta_tables import write_table

pytestmark = pytest.mark.heavy

FRAME = """<!doctype html><title>frame</title>
<style>:root {{ color-scheme: light dark; }} iframe {{ border: 0; }}</style>
<script>addEventListener('message', event => {{
  const seen = document.createElement('script');
  seen.type = 'application/json';
  seen.id = 'seen';
  seen.textContent = event.data;
  document.body.append(seen);
}});</script><iframe src="{report}" width="{width}" height="900"></iframe>"""
"""A frame, since a window cannot be as narrow as a phone."""
PROBE = Path(__file__).with_name("probe.js")
BEGIN = 1_763_706_000_000
SENSORS = 1_000
SECONDS_MAX = 120
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000"),
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of a long run with many faults, with the probe script in its head."""
    folder = tmp_path_factory.mktemp("report")
    random = Random(7)
    now = BEGIN
    with Ledger(folder / "ledger.jsonl", lambda: now) as written:
        fleets = [{"kind": "coap", "sensors": SENSORS}]
        written.begin(
            {"seed": 7, "scenario": {"name": "long", "description": "All.", "fleets": fleets}, "targets": "here"}
        )
        for number in range(20_000):
            now += random.randrange(12)
            mark = written.reported(Event(f"urn:dev:mac:{number % SENSORS:016x}", id=number, data={"a": 1}))
            for again in range(min(25, 1 + int(random.expovariate(0.6)))):
                written.sent(mark, again=again > 0)
                now += 1 << random.randrange(3)
            written.acked(mark)
            if number % 1_700 == 0:
                written.happened("agent", "killed")
                now += 900
                written.happened("agent", "runs again")
        written.sample({"accepted": 20_000})
        written.end()
    write_table(folder / "table", ())
    verdict = judge_remote_run(folder / "ledger.jsonl", Sink(table=folder / "table"), final=True)
    verdict = replace(verdict, rows=19_950, records=21_000, declared={"equal-events": 3})
    arrivals = [(moment, 100) for moment in range(BEGIN, now, 1_000)]
    page.write(folder / "ledger.jsonl", verdict, Arrivals(arrivals, arrivals), folder / "report.html")
    text = (folder / "report.html").read_text()
    (folder / "probed.html").write_text(text.replace("<head>", f"<head><script>{PROBE.read_text()}</script>", 1))
    return folder / "probed.html"


def _look(report: Path, tmp_path: Path, width: int, *, dark: bool) -> dict[str, Any]:
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(report=report.as_uri(), width=width))
    command = [
        programs.require("chromium"),
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,1000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom",
        frame.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    found = re.search(r'<script type="application/json" id="seen">(.*?)</script>', done.stdout, flags=re.DOTALL)
    assert found, done.stderr[-2_000:]
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1_200, 390])
def test_the_report_is_readable_without_a_word_from_the_console(
    report: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    seen = _look(report, tmp_path, width, dark=dark)
    assert seen["wrong"] == []
    assert seen["overlaps"] == []
    assert seen["width"] <= seen["window"] == width
    assert seen["dark"] is dark
    assert (seen["paper"] == "rgb(255, 255, 255)") is not dark
    assert seen["paper"] != seen["ink"]
    assert (seen["flow"], seen["stations"]) == (("none", 6) if width < 640 else ("block", 0))
    assert (seen["hint"] == '"Scroll sideways to see all columns."') is (width < 640)
    assert seen["all"] == 200
    assert seen["found"] == ["urn:dev:mac:000000000000003f"]
    assert seen["most"] >= 20
