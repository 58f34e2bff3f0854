"""Every query of the dashboards has an answer in a real Prometheus that scrapes real agents and the job's metrics."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from cloud.stream.metrics import JobMetrics
from cloud.table.sink import Written
from simulators.services import ports
from simulators.services.process import Command, Process
from tests.monitoring.test_monitoring import FOLDER, GATEWAY, JOB, METRIC, ROOT
from tests.support.agent_process import agent_process, configured, post
from tests.support.debian_package import unpack

pytestmark = pytest.mark.heavy

FIRST_SCRAPES_SECONDS_MAX = 120.0
DENIED = "urn:stranger"
CERTIFICATE = ROOT / "tests" / "agent" / "http" / "localhost.crt"
TRUSTED = f'{{"security.protocol" = "SSL", "ssl.ca.location" = "{CERTIFICATE}"}}'
BY_OTHERS = {
    "oncegate_audit_epochs",
    "oncegate_audit_findings",
    "oncegate_audit_sections",
    "oncegate_audit_timestamp_seconds",
    "oncegate_relay_held",
    "oncegate_relay_look_timestamp_seconds",
}
"""Metrics of the audit (tests/cloud/auditing/test_report.py) and of the relay (tests/cloud/relaying/test_relay.py)."""


def configuration(folder: Path, gateways: Sequence[int], job: int) -> Path:
    """Write the example of the documents with targets of this machine."""
    document = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    document["global"]["scrape_interval"] = "1s"
    document["rule_files"] = [str(FOLDER / name) for name in document["rule_files"]]
    targets = {"oncegate": gateways, "oncegate-cloud": [job]}
    scraped = [one for one in document["scrape_configs"] if one["job_name"] in targets]
    assert len(scraped) == len(targets)
    for one in scraped:
        one["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in targets[one["job_name"]]]}]
        for key in ("scheme", "tls_config", "authorization"):
            one.pop(key, None)
    document["scrape_configs"] = scraped
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def report_batch(metrics: JobMetrics) -> None:
    """Count a batch as the job does once its table has it."""
    metrics.written(1, Written(rows=9, late=1, bad=1, found=1))
    metrics.receipted(1)
    metrics.idle()
    metrics.input.inc(10)
    metrics.duplicates.labels("state").inc()
    metrics.batch_seconds.observe(1)
    metrics.receipt_age.observe(2)


@contextmanager
def gateway_agent(folder: Path, port: int, more: str) -> Iterator[None]:
    """Run an agent without Kafka."""
    folder.mkdir()
    http = f"127.0.0.1:{port}"
    with agent_process(configured(folder, more, gateway=folder.name, http=http)) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        yield


def ask(port: int, query: str) -> list[object]:
    with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=60) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    found: list[object] = document["data"]["result"]
    return found


def test_every_query_of_the_dashboards_is_answered_and_every_metric_of_the_alerts_is_there(tmp_path: Path) -> None:
    gateway, full, job, prometheus = ports.free(4)
    metrics = JobMetrics(("127.0.0.1", job))
    program = unpack("prometheus") / "usr" / "bin" / "prometheus"
    arguments = (
        *(str(program), f"--config.file={configuration(tmp_path, [gateway, full], job)}"),
        *(f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{prometheus}"),
    )
    with (
        gateway_agent(tmp_path / "gw1", gateway, f'[devices]\ndeny = ["{DENIED}"]\n'),
        gateway_agent(
            tmp_path / "gw2", full, f'bytes_per_second_max = "20kB"\nproperties = {TRUSTED}\n[store]\nmax_bytes = 1\n'
        ),
        Process(Command("prometheus", arguments, tmp_path / "prometheus.log")) as server,
    ):
        server.wait_for_log("Server is ready to receive web requests")

        def scrapes(more: str) -> bool:
            """Whether all programs have been scraped twice since a counter changed."""
            names = [f'up{{instance="127.0.0.1:{port}"}}' for port in (gateway, full)]
            return all(
                ask(prometheus, f"count_over_time({name}[5m]) > {more}")
                for name in (*names, "oncegate_cloud_rows_total")
            )

        server.wait_until(lambda: scrapes("1"), "first scrapes", FIRST_SCRAPES_SECONDS_MAX)
        for number in (1, 1, 2):
            assert post(gateway, {"device": "a", "id": number}, {"device": DENIED, "id": number}) == 200
        assert post(full, {"device": "a", "id": 1}) == 503
        report_batch(metrics)
        server.wait_until(lambda: unanswered(prometheus) == [], "answers to all queries", FIRST_SCRAPES_SECONDS_MAX)
        alerts = [expression for one in (GATEWAY, JOB) for expression in one.alerts()]
        named = {name for expression in alerts for name in METRIC.findall(expression)} - BY_OTHERS
        assert len(named) > 15
        assert [name for name in sorted(named) if not ask(prometheus, name)] == []
        log = (tmp_path / "prometheus.log").read_text()
    assert re.findall(r"level=(?:error|warn).*", log) == []


def unanswered(prometheus: int) -> list[str]:
    queries = [query.replace("$instance", ".*") for one in (GATEWAY, JOB) for query in one.queries()]
    return [query for query in queries if not ask(prometheus, query)]
