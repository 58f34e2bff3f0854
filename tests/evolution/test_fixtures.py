"""What an earlier release has left behind goes on under this one: table, checkpoint, topic and store (make.py)."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.jars import ivy
from contract.event import Event
from simulators.evidence.topic import Topic, read
from simulators.services.install import programs
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway
from tests.cloud.running import POSTGRES, CloudSide
from tests.evolution.make import EVENTS, SINKS, STORED, records, topic
from tests.support import older_spark
from tests.support.commands import output_of
from tests.support.posting_gateway import DEVICE, PostingGateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.guarantee(0)]
RELEASES = sorted((Path(__file__).parent / "fixtures").glob("*.tar.xz"))


@pytest.fixture(params=RELEASES, ids=lambda file: file.name.removesuffix(".tar.xz"))
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def broker(left: Path) -> Iterator[Broker]:
    with Broker(left / "broker") as running:
        yield running


@pytest.fixture
def server(left: Path) -> Iterator[Postgres]:
    with Postgres(left) as running:
        command = (programs.require("psql"), f"--dbname={running.connection}", "--quiet", "--set=ON_ERROR_STOP=1")
        output_of(*command, f"--file={left / 'dump.sql'}")
        yield running


@pytest.mark.spark
@pytest.mark.parametrize("sink", SINKS)
def test_the_job_goes_on_with_table_and_checkpoint_under_one_line_of_spark_and_the_next(
    left: Path, broker: Broker, server: Postgres, sink: str
) -> None:
    side = CloudSide(broker.bootstrap_servers, topic(sink), left / sink)
    side.postgres = server if sink == POSTGRES else None
    before = {bytes(row["fingerprint"]): row for row in side.rows()}
    assert len(before) == EVENTS
    assert len(side.quarantined()) == 1
    sent = records()
    new = Gateway("gw-3", "00000000000000c3").records([Event("urn:dev:mac:0000000000000009", id=1, data={"t": 2})])
    again = records("gw-4", "00000000000000d4")[:39]  # all but that which only its label identifies
    try:
        for number, home in enumerate((older_spark.home(), ivy.pyspark_folder()), start=1):
            side.spark_home = home
            side.send([*sent, *again, *new], partition=0)
            side.start()
            side.wait_for_receipts(len(sent) + number * len([*sent, *again, *new]))
            assert side.stop() == 0
    finally:
        side.close()
    after = {bytes(row["fingerprint"]): row for row in side.rows()}
    assert len(after) == len(side.rows()) == EVENTS + 1
    assert {mark: row.items() <= after[mark].items() for mark, row in before.items()} == dict.fromkeys(before, True)


def test_the_agent_delivers_what_is_in_the_store_and_knows_it(left: Path, broker: Broker) -> None:
    broker.create_topics()
    with PostingGateway(left, left / "state", broker.bootstrap_servers).process() as gateway:
        gateway.start()
        for _ in range(STORED // 20):
            assert gateway.post() == 200
        assert gateway.status()["accepted"] == STORED  # the same events again, and no new one
        topic = Topic(broker.bootstrap_servers)
        wait_until(lambda: sum(topic.ends().values()) >= STORED, "the events of the store")
        gateway.agent.terminate()
    delivered = Counter(row.fingerprint for row in read(topic) if row.device == DEVICE)
    assert (len(delivered), set(delivered.values())) == (STORED, {1})
