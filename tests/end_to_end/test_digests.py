"""From a real agent through Kafka and the job into the table: the audit finds whatever is changed there afterwards."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from simulators.run.gateway import Gateway
from simulators.run.job import Job
from simulators.services.kafka.broker import Broker
from simulators.services.spark import submit
from tests.support.agent_process import ask
from tests.support.waiting import wait_for_end, wait_until

AUDIT = Path(__file__).resolve().parents[2] / "cloud" / "audit.py"
STANDSTILL_SECONDS_MAX = 600.0
"""Maximum time without a log line: an audit logs little, and a busy machine is slow."""
SECTIONS = re.compile(r"^sections: (.*)$", re.MULTILINE)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.heavy, pytest.mark.timeout(3600)]


def post(gateway: Gateway, first: int, count: int) -> None:
    events = [{"device": "urn:dev:ops:a", "id": first + n, "data": {"t": 20.5 + n}} for n in range(count)]
    _, answer = ask(gateway.http_address[1], "POST", "/api/v1/events", json.dumps(events))
    assert json.loads(answer)["accepted"] == count


def audit(folder: Path, bootstrap_servers: str, table: Path) -> tuple[int, str]:
    """Run an audit; return its exit status and what it has printed."""
    folder.mkdir(exist_ok=True)
    ends = ("--bootstrap-servers", bootstrap_servers, "--table", str(table), "--output", str(folder / "audit"))
    process = submit(AUDIT, (*ends, "--metrics-file", str(folder / "audit.prom")), folder)
    status = wait_for_end(process, STANDSTILL_SECONDS_MAX)
    return status, process.log()


@pytest.mark.guarantee(8)
def test_what_is_changed_in_the_table_is_found_and_a_kill_is_no_finding(tmp_path: Path) -> None:
    with ExitStack() as stack, Broker(tmp_path / "kafka") as broker:
        broker.create_topics()
        job = Job(tmp_path / "cloud", tmp_path / "job.log", broker.bootstrap_servers)
        gateway = Gateway(tmp_path / "gateway", tmp_path / "agent.log", broker.bootstrap_servers)
        for service in (job, gateway):
            stack.callback(service.close)
            service.start()
        job.wait()
        post(gateway, 1, 30)
        gateway.process.kill()
        gateway.start()
        post(gateway, 100, 20)
        gateway.process.kill()
        gateway.start()  # its first event states the digest of the second epoch
        post(gateway, 200, 10)
        wait_until(lambda: gateway.status().outbox == 0, "everything has its receipt", STANDSTILL_SECONDS_MAX)
        job.stop()
        folder = tmp_path / "audit"

        status, log = audit(folder, broker.bootstrap_servers, job.table)
        assert status == 0, log
        assert SECTIONS.findall(log)[-1] == "unstated 1 (11 labels), verified 2 (52 labels)"

        DeltaTable(job.table).update(predicate="id = '105'", updates={"data": """'{"t":99.5}'"""})
        status, log = audit(folder, broker.bootstrap_servers, job.table)
        assert status == 1, log
        assert SECTIONS.findall(log)[-1] == "differs 1 (21 labels), unstated 1 (11 labels), verified 1 (31 labels)"
        assert re.search(r"^differs: gw1 [0-9a-f]{16} 1 to 21$", log, re.MULTILINE), log
        assert 'oncegate_audit_sections{status="differs"} 1.0' in (folder / "audit.prom").read_text()

        DeltaTable(job.table).delete("id = '7'")
        status, log = audit(folder, broker.bootstrap_servers, job.table)
        assert status == 1, log
        assert SECTIONS.findall(log)[-1] == "differs 1 (21 labels), incomplete 1 (31 labels), unstated 1 (11 labels)"
        assert re.search(r"^vanished: gw1 [0-9a-f]{16} 8$", log, re.MULTILINE), log
