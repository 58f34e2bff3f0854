"""A release beside the one before it: each pair of parts that there is while gateways and cloud are upgraded."""

import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from simulators.evidence.topic import Topic, read
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.running import PARTITIONS, POSTGRES, ROOT, CloudSide
from tests.evolution.make import SINKS
from tests.support.posting_gateway import DEVICE, PostingGateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.kafka, pytest.mark.guarantee(0)]

PREVIOUS = "50631ec7"
"""The release before this one, moved at each (docs/releasing.md). Before the first it is the commit that has left the
oldest fixtures: its programs run with today's libraries."""
LAST_AUDIT = "audit-of-its-own"
"""The folder of an older audit after a newer one. That of 50631ec7 fails in a newer one's; from the first release on it
is `audit`, as of all others (tests/cloud/auditing/test_store.py)."""
KEY = "5e" * 32


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    command = ("git", "archive", PREVIOUS, "agent", "cloud", "contract")
    archive = subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
    if archive.returncode:
        pytest.skip(f"a clone without the previous release, {PREVIOUS}: {archive.stderr.decode()}")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as sources:
        sources.extractall(folder, filter="data")
    return folder


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as running:
        yield running


class Plant:
    """A gateway that signs its records, and the cloud side that gives their receipts."""

    def __init__(self, cloud: CloudSide) -> None:
        self.cloud = cloud
        key, keys = cloud.folder / "mac.key", cloud.folder / "gateways.csv"
        for file, text in ((key, KEY), (keys, f"gw1,{KEY}")):
            file.touch(0o600)
            file.write_text(text)
        self.known = ("--gateways", str(keys))
        self.environment = {**cloud.of_gateways, "ONCEGATE_KAFKA__MAC_KEY_FILE": str(key)}
        self.gateway = PostingGateway(cloud.folder, cloud.folder / "state", cloud.bootstrap_servers)

    def post(self) -> None:
        """Kill the gateway, start it again, and post all events again, and new ones."""
        self.gateway.agent.kill()
        self.gateway.start()
        if self.gateway.acked:
            assert self.gateway.post_again(*self.gateway.acked) == 200
        assert self.gateway.post() == 200

    def run_job(self, release: Path, *options: str) -> None:
        """Run a job until the gateway has all receipts; the table then has each acked event once. Kill the job."""
        self.cloud.release = release
        self.cloud.start(*self.known, *options)
        self.cloud.wait(self._has_all_receipts, "the gateway has all receipts")
        ids = [int(row["id"]) for row in self.cloud.rows() if row["device"] == DEVICE]
        assert (sorted(ids), self.cloud.quarantined()) == (sorted(self.gateway.acked), [])
        self.cloud.kill()

    def audit(self, release: Path, *options: str, output: str = "audit") -> None:
        """Run an audit; it accounts for each row, and finds digests right."""
        self.cloud.release = release
        labels = self.cloud.audited(0, *options, output=output)
        told = (self.cloud.folder / output / "spark.log").read_text().rpartition("sections: ")[2]
        assert labels == f"accepted {len(self.cloud.rows())}"
        assert "verified" in told

    def _has_all_receipts(self) -> bool:
        events = self.gateway.status()["events"]
        return (events["new"], events["forwarded"]) == (0, 0)


@pytest.fixture(params=SINKS)
def plant(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Plant]:
    broker.create_topics("pairs", partitions=PARTITIONS)
    with Postgres(tmp_path) as server:
        cloud = CloudSide(broker.bootstrap_servers, "pairs", tmp_path)
        cloud.postgres = server if request.param == POSTGRES else None
        yield Plant(cloud)
        cloud.close()


@pytest.mark.spark
def test_an_older_job_and_audit_have_each_event_of_a_newer_gateway_once(plant: Plant, previous: Path) -> None:
    with plant.gateway.process(plant.environment):
        for _ in range(2):
            plant.post()
            plant.run_job(previous)
    plant.audit(previous, "--verify", "1")


@pytest.mark.spark
def test_with_an_older_gateway_a_newer_job_and_audit_go_on_after_older_ones_and_these_after_them(
    plant: Plant, previous: Path
) -> None:
    module = "from pyspark.sql.functions import lit\ndef add(rows):\n    return rows.withColumn('storey', lit(2))\n"
    (plant.cloud.folder / "storeys.py").write_text(module)
    with plant.gateway.process(plant.environment, previous):
        plant.post()
        plant.post()
        plant.run_job(previous)
        plant.audit(previous)
        plant.post()
        plant.run_job(ROOT, "--transform", "storeys:add")
        plant.audit(ROOT, *plant.known)
        plant.post()
        plant.run_job(previous)
        plant.audit(previous, output=LAST_AUDIT)
    storeys = Counter(row["storey"] for row in plant.cloud.rows())
    assert storeys == {None: 63, 2: 21}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_store_with_a_backlog_goes_up_down_and_up_again_with_kills(
    broker: Broker, previous: Path, tmp_path: Path, delivery: str
) -> None:
    broker.create_topics()
    broker.kill()
    topic, in_topic = Topic(broker.bootstrap_servers), 0
    gateway = PostingGateway(tmp_path, tmp_path / "state", broker.bootstrap_servers)
    for number, release in enumerate((previous, ROOT, previous, ROOT)):
        cap = "1MB" if number == 3 else "3kB"
        environment = {"ONCEGATE_KAFKA__DELIVERY": delivery, "ONCEGATE_KAFKA__BYTES_PER_SECOND_MAX": cap}
        with gateway.process(environment, release):
            gateway.start()
            if gateway.acked:
                assert gateway.post_again(*gateway.acked) == 200
            assert gateway.post(50, 200) == 200
            assert gateway.status()["accepted"] == len(gateway.acked)  # it knows all others by their fingerprints
            if number == 1:
                broker.start()
            if number in (1, 2):
                wait_until(lambda before=in_topic: sum(topic.ends().values()) > before, "more in the topic")  # type: ignore[misc]
                in_topic = sum(topic.ends().values())
                assert gateway.status()["events"]["new"] > 0
            if number == 3:
                wait_until(lambda: gateway.status()["events"]["new"] == 0, "everything in the topic")
            gateway.agent.kill()
    rows = list(read(topic))
    assert {row.id for row in rows if row.device == DEVICE} == gateway.acked
    labels = Counter((row.epoch, row.sequence) for row in rows)
    named = {(row.epoch, row.sequence, row.fingerprint) for row in rows}
    assert len(labels) == len(named) == len({row.fingerprint for row in rows})  # one label for each, and each its own
    if delivery == "exactly-once":
        assert set(labels.values()) == {1}
