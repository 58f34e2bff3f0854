"""Each sink, also one of another package: written by the job over kills, and read by every other command."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from contract.event import Event
from simulators.services.kafka.broker import Broker
from tests.cloud.cli.test_command_line import PROGRAM
from tests.cloud.gateway import Gateway, Record, readings
from tests.cloud.running import DELTA, ICEBERG, PARTITIONS, POSTGRES, CloudSide
from tests.cloud.tables import ACCEPTED, DAY, DEVICE
from tests.support.commands import Completed, run
from tests.support.packages import install_example

pytestmark = [pytest.mark.spark, pytest.mark.heavy]


@pytest.fixture
def duckdb_side(broker: Broker, tmp_path: Path) -> Iterator[CloudSide]:
    site = install_example("oncegate-duckdb", tmp_path / "site")
    topic = f"events.{uuid4().hex}"
    broker.create_topics(topic, partitions=PARTITIONS)
    options = ("--sink", "duckdb", "--connection", str(tmp_path / "plant.duckdb"), "--table", "events")
    packages = {"PYTHONPATH": str(site)}
    side = CloudSide(broker.bootstrap_servers, topic, tmp_path, sink=options, environment=packages)
    yield side
    side.close()


def command(side: CloudSide, name: str, *words: str) -> Completed:
    environment = {**side.environment, "SPARK_HOME": str(side.spark_options().home)}
    return run(PROGRAM, name, *side.sink_options(), *words, environment=environment)


@pytest.mark.guarantee(5)
def test_a_sink_in_a_package_of_its_own_has_each_event_once_over_kills(duckdb_side: CloudSide) -> None:
    serves_all_commands(duckdb_side)
    refused = command(duckdb_side, "query", "COPY events TO 'x.csv'")
    assert (refused.returncode, refused.stderr) == (1, "oncegate-cloud query: only one query is allowed\n")
    told = command(duckdb_side, "query", "SELECT 1", "--sink", "dukdb").stderr
    assert "there are: delta, postgres, iceberg, duckdb" in told


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES, ICEBERG], indirect=True)
def test_a_sink_of_the_jobs_own_has_each_event_once_over_kills(cloud: CloudSide) -> None:
    serves_all_commands(cloud)


def serves_all_commands(side: CloudSide) -> None:
    gateway = Gateway()
    first, later = gateway.records(readings(40)), gateway.records(readings(40, start=40))
    wrapped = [gateway.record(Event(DEVICE, id=7, data={"t": 1}), ACCEPTED + days * DAY) for days in (0, 30)]
    bad = Record(b"key", b"no event", [])
    sent = 0
    for records in ([*first, *first], [*later, *first[:9], bad], [*wrapped, *wrapped, *later]):
        side.send(records)
        sent += len(records)
        side.start()
        side.wait_for_receipts(sent)
        side.kill()
    side.start()
    side.wait_for_log("stage=started")
    assert side.stop() == 0
    assert ask(side, "SELECT count(*) AS n FROM events WHERE via <> 'gateway'") == [{"n": 81}]
    reasons = ask(side, "SELECT DISTINCT reason FROM quarantine ORDER BY reason")
    assert reasons == [{"reason": "headers"}, {"reason": "id_reused"}]
    assert ask(side, "SELECT count(*) AS n, min(value) AS low FROM readings") == [{"n": 81, "low": "1"}]
    cut = command(side, "query", "SELECT id FROM events", "--rows", "3", "--format", "csv")
    assert (len(cut.stdout.splitlines()), "only the first 3 rows" in cut.stderr) == (4, True)
    wrong = command(side, "query", "SELECT nothing FROM events")
    assert (wrong.returncode, wrong.stdout, "nothing" in wrong.stderr, "Traceback" in wrong.stderr) == (
        1,
        "",
        True,
        False,
    )
    assert side.wait_for_end(side.audit()) == 0
    ends = ("--bootstrap-servers", side.bootstrap_servers, "--topic", side.topic, "--group", side.group)
    mark = ask(side, "SELECT fingerprint AS mark FROM events LIMIT 1")[0]["mark"]
    assert command(side, "trace", str(mark), *ends).returncode == 0
    assert command(side, "maintenance").returncode == 0


def ask(side: CloudSide, statement: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in command(side, "query", statement, "--format", "json").stdout.splitlines()]
