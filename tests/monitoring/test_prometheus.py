"""Every query of the dashboards has an answer in a real Prometheus that scrapes a real agent and the job's metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
import yaml

from cloud.stream.metrics import Metrics
from cloud.table.sink import Written
from simulators.services import ports
from simulators.services.install import debian
from simulators.services.process import Command, Process
from tests.monitoring.test_monitoring import FOLDER, GATEWAY, JOB, Monitored
from tests.support.agent_process import agent_process

pytestmark = pytest.mark.heavy

FIRST_SCRAPES_SECONDS_MAX = 120.0
DENIED = "urn:stranger"
WITHOUT_ANSWER = {'sum by (reason) (rate(oncegate_deliveries_refused_total{instance=~".*"}[5m]))'}
"""Queries of which a series begins with the first refusal: a full store is not part of this test."""


def configuration(folder: Path, gateway: int, job: int) -> Path:
    """Write the example of the documents with targets of this machine."""
    document = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    document["global"]["scrape_interval"] = "1s"
    document["rule_files"] = [str(FOLDER / name) for name in document["rule_files"]]
    targets = {"oncegate": gateway, "oncegate-cloud": job}
    scraped = [one for one in document["scrape_configs"] if one["job_name"] in targets]
    assert len(scraped) == len(targets)
    for one in scraped:
        one["static_configs"] = [{"targets": [f"127.0.0.1:{targets[one['job_name']]}"]}]
        for key in ("scheme", "tls_config", "authorization"):
            one.pop(key, None)
    document["scrape_configs"] = scraped
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def report_batch(metrics: Metrics) -> None:
    """Count a batch as the job does once its table has it."""
    metrics.written(1, Written(rows=9, late=1, bad=1, found=1))
    metrics.receipted(1)
    metrics.idle()
    metrics.input.inc(10)
    metrics.duplicates.labels("state").inc()
    metrics.batch_seconds.observe(1)
    metrics.receipt_age.observe(2)


def post(port: int, *events: dict[str, object]) -> None:
    body = json.dumps(events).encode()
    request = Request(f"http://127.0.0.1:{port}/api/v1/events", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        answer.read()


def ask(port: int, query: str) -> list[object]:
    with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=60) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    found: list[object] = document["data"]["result"]
    return found


def test_every_query_of_the_dashboards_is_answered(tmp_path: Path) -> None:
    gateway, job, prometheus = ports.free(3)
    metrics = Metrics()
    metrics.serve("127.0.0.1", job)
    toml = tmp_path / "oncegate.toml"
    toml.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{tmp_path / "state"}"\n[coap]\nenabled = false\n'
        f'[devices]\ndeny = ["{DENIED}"]\n'
        f'[http]\nbind = "127.0.0.1:{gateway}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    program = debian.unpack("prometheus") / "usr" / "bin" / "prometheus"
    arguments = (
        *(str(program), f"--config.file={configuration(tmp_path, gateway, job)}"),
        *(f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{prometheus}"),
    )
    with agent_process(toml) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        with Process(Command("prometheus", arguments, tmp_path / "prometheus.log")) as server:
            server.wait_for_log("Server is ready to receive web requests")

            def scrapes(more: str) -> bool:
                """Whether both programs have been scraped twice since a counter changed."""
                return all(
                    ask(prometheus, f"count_over_time({name}[5m]) > {more}")
                    for name in ('up{job="oncegate"}', "oncegate_cloud_rows_total")
                )

            server.wait_until(lambda: scrapes("1"), "first scrapes", FIRST_SCRAPES_SECONDS_MAX)
            for number in (1, 1, 2):
                post(gateway, {"device": "a", "id": number}, {"device": DENIED, "id": number})
            report_batch(metrics)
            server.wait_until(lambda: unanswered(prometheus) == [], "answers to all queries", FIRST_SCRAPES_SECONDS_MAX)
            log = (tmp_path / "prometheus.log").read_text()
    assert re.findall(r"level=(?:error|warn).*", log) == []


def unanswered(prometheus: int) -> list[str]:
    return [query for one in (GATEWAY, JOB) for query in queries(one) if not ask(prometheus, query)]


def queries(monitored: Monitored) -> list[str]:
    found = [query.replace("$instance", ".*") for query in monitored.queries()]
    return [query for query in found if query not in WITHOUT_ANSWER]
