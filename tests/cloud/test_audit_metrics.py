"""The metrics that `oncegate-cloud audit` writes, read by a real node exporter, Prometheus and its alert rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from deltalake import DeltaTable

from cloud.auditing.account import ACCEPTED, VANISHED
from simulators.services import ports
from simulators.services.process import Command, Process
from tests.cloud.cli.test_command_line import PROGRAM
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import CloudSide
from tests.monitoring.test_monitoring import FOLDER
from tests.monitoring.test_prometheus import ask
from tests.support.debian_package import unpack
from tests.support.waiting import wait_for_end, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.heavy]

SCRAPE_SECONDS_MAX = 120.0
STANDSTILL_SECONDS_MAX = 600.0
"""Maximum time without a log line: an audit logs little, and a busy machine is slow."""
RULES = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((FOLDER / "job-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
    if "oncegate_audit" in rule["expr"]
}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[int]:
    """Run the node exporter on tmp_path/metrics, and Prometheus with the example's rules; yield Prometheus's port."""
    node, port = ports.free(2)
    document = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    document["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    document["rule_files"] = [str(FOLDER / name) for name in document["rule_files"]]
    document["scrape_configs"] = [one for one in document["scrape_configs"] if one["job_name"] == "node"]
    document["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{node}"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(document))
    (tmp_path / "metrics").mkdir()
    exporter = (
        *(str(unpack("prometheus-node-exporter") / "usr/bin/prometheus-node-exporter"),),
        *("--collector.disable-defaults", "--collector.textfile", f"--web.listen-address=127.0.0.1:{node}"),
        f"--collector.textfile.directory={tmp_path / 'metrics'}",
    )
    server = (
        *(str(unpack("prometheus") / "usr/bin/prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}"),
        *(f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
    )
    with (
        Process(Command("node-exporter", exporter, tmp_path / "exporter.log")) as exporting,
        Process(Command("prometheus", server, tmp_path / "prometheus.log")) as serving,
    ):
        exporting.wait_for_port(node)
        serving.wait_for_log("Server is ready to receive web requests")
        yield port


def audit(cloud: CloudSide, file: Path) -> Process:
    ends = ("--bootstrap-servers", cloud.bootstrap_servers, "--topic", cloud.topic, "--group", cloud.group)
    places = ("--output", str(cloud.folder / "audit"), "--metrics-file", str(file), *cloud.sink_options())
    process = Process(Command("audit", (str(PROGRAM), "audit", *ends, *places), cloud.folder / "audit.log"))
    process.start()
    cloud.jobs.append(process)
    return process


def value(prometheus: int, query: str) -> float | None:
    found = ask(prometheus, query)
    if not found:
        return None
    (sample,) = found
    assert isinstance(sample, dict)
    return float(sample["value"][1])


def wait_for_value(prometheus: int, query: str, wanted: float) -> None:
    wait_until(lambda: value(prometheus, query) == wanted, f"{query} is {wanted}", SCRAPE_SECONDS_MAX)


def firing(prometheus: int) -> list[str]:
    with urlopen(f"http://127.0.0.1:{prometheus}/api/v1/alerts", timeout=60) as answer:
        alerts = json.load(answer)["data"]["alerts"]
    return [one["labels"]["alertname"] for one in alerts if one["state"] == "firing"]


def test_the_alerts_on_the_audit_read_what_it_writes(cloud: CloudSide, prometheus: int, tmp_path: Path) -> None:
    file = tmp_path / "metrics" / "audit.prom"
    assert set(RULES) == {"OncegateAuditFindings", "OncegateAuditOld", "OncegateAuditSectionsDiffer"}
    cloud.send(Gateway().records(readings(20)), 0)
    cloud.start()
    cloud.wait_for_receipts(20)
    assert cloud.stop() == 0

    whole = audit(cloud, file)
    assert wait_for_end(whole, STANDSTILL_SECONDS_MAX) == 0, whole.log()
    wait_for_value(prometheus, f'oncegate_audit_labels{{status="{ACCEPTED}"}}', 20.0)
    assert value(prometheus, "oncegate_audit_findings") == 0.0
    age, _, limit = RULES["OncegateAuditOld"].partition(" > ")
    assert limit
    assert 0.0 <= (value(prometheus, age) or -1.0) < 600.0
    assert [ask(prometheus, expr) for expr in RULES.values()] == [[], [], []]

    DeltaTable(cloud.place("events")).delete("id = '7'")
    broken = audit(cloud, file)
    assert wait_for_end(broken, STANDSTILL_SECONDS_MAX) == 1, broken.log()
    wait_for_value(prometheus, "oncegate_audit_findings", 1.0)
    assert value(prometheus, f'oncegate_audit_labels{{status="{VANISHED}"}}') == 1.0
    assert value(prometheus, RULES["OncegateAuditFindings"]) == 1.0
    wait_until(lambda: "OncegateAuditFindings" in firing(prometheus), "the alert fires", SCRAPE_SECONDS_MAX)
