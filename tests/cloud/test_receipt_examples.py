"""The consumers of docs/examples that give receipts, built by their own languages' tools, against a real broker."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict

from agent.config.settings import KafkaSettings
from agent.forward.kafka.client import LastError, open_admin, open_reader
from agent.forward.receipts.group_offsets import GroupOffsets
from agent.forward.receipts.rules import BatchDecision, Rules, Verdict, decide
from agent.store.port import Batch, Offsets
from contract.event import Event
from simulators.services.install import jars
from simulators.services.install import java as runtime
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log
from simulators.services.postgres import Postgres
from simulators.services.process import Command, Process
from tests.cloud.gateway import Gateway, Record, now, readings, without_header
from tests.cloud.plain_consumer.consuming import ROOT, WAIT_SECONDS_MAX, ConsumerSide

pytestmark = [pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(5)]

EXAMPLES = ROOT / "docs" / "examples"
BUILD_SECONDS_MAX = 600
KILLS, EVENTS, DAY = 6, 300, 86_400_000


@cache
def go() -> tuple[str, ...]:
    compiler = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    if compiler is None:
        pytest.skip("there is no Go")
    program = f"{mkdtemp()}/receipts"
    command = [compiler, "build", "-o", program, "."]
    subprocess.run(command, cwd=EXAMPLES / "receipts-go", check=True, timeout=BUILD_SECONDS_MAX)
    return (program,)


@cache
def java() -> tuple[str, ...]:
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("there is no javac")
    folder = mkdtemp()
    classpath = ":".join([folder, *map(str, (*jars.paths(jars.STREAMS), *jars.paths(jars.JDBC)))])
    source = EXAMPLES / "receipts-java" / "Receipts.java"
    subprocess.run([compiler, "-cp", classpath, "-d", folder, source], check=True, timeout=BUILD_SECONDS_MAX)
    return (str(runtime.require()), "-Xmx128m", "-XX:+UseSerialGC", "-cp", classpath, "Receipts")


PROGRAMS = {"go": go, "java": java}


def database(server: Postgres, language: str, schema: str) -> str:
    """Return the URL of a schema."""
    given = conninfo_to_dict(server.connection)
    login = urlencode({"user": str(given["user"]), "password": str(given["password"])})
    url = f"postgresql://127.0.0.1:{server.port}/postgres?{login}"
    return f"jdbc:{url}&currentSchema={schema}" if language == "java" else f"{url}&search_path={schema}"


class Example(ConsumerSide):
    """A topic of two partitions, a schema of the database, and one of the programs."""

    def __init__(self, language: str, broker: Broker, server: Postgres, folder: Path) -> None:
        super().__init__(broker, server, folder, f"e{uuid4().hex}")
        self.program = PROGRAMS[language]()
        self.language = language
        self.select("CREATE SCHEMA {}")

    def start(self, *options: str) -> Process:
        ends = ("-brokers", self.bootstrap_servers, "-topic", self.name, "-group", self.name)
        where = ("-database", database(self.server, self.language, self.name))
        member = Process(
            Command("example", (*self.program, *ends, *where, *options), self.folder / "example.log", self.folder)
        )
        member.start()
        self.members.append(member)
        return member

    def ids(self) -> list[int]:
        if self.select("SELECT to_regclass('{}.events')") == [(None,)]:
            return []
        return sorted(row[0] for row in self.select("SELECT (value::json ->> 'id')::int FROM {}.events"))

    def marks(self) -> set[str]:
        """Return the fingerprints of the events in the result."""
        return {row[0] for row in self.select("SELECT id FROM {}.events")}

    def refused(self) -> list[tuple[int, int, str]]:
        return self.select('SELECT partition, "offset", reason FROM {}.quarantine ORDER BY 1, 2')

    def decide(self, partition: int, lowest: int, highest: int) -> BatchDecision:
        """Return what a gateway decides on a batch that it has sent to these offsets."""
        kafka = KafkaSettings(self.bootstrap_servers, self.name, "at-least-once", {})
        errors = LastError()
        reader = open_reader(kafka, self.name, errors)
        try:
            offsets = GroupOffsets(open_admin(kafka, errors), reader, self.name, errors)
            view = offsets.read_view([partition], threading.Event())
        finally:
            reader.close()
        seen = view.partitions[partition]
        batch = Batch(1, 9, view.topic_id, {partition: Offsets(lowest, highest, seen.committed_epoch)})
        return decide(batch, view, Rules(None if seen.receipt is None else seen.receipt.table))

    def ends(self) -> dict[int, int]:
        """Return the offset behind the last record of each partition, not behind the marker of a transaction."""
        return {partition: max(offset for at, offset in self.records() if at == partition) + 1 for partition in (0, 1)}

    def records(self) -> dict[tuple[int, int], str]:
        """Return the fingerprint of each committed record, by partition and offset."""
        found: dict[tuple[int, int], str] = {}
        settings = {"bootstrap.servers": self.bootstrap_servers, "group.id": "nobody", "enable.auto.commit": False}
        with Consumer(settings) as reader:
            reader.assign([TopicPartition(self.name, partition, 0) for partition in (0, 1)])
            while messages := reader.consume(5000, 2.0):
                for one in messages:
                    assert one.error() is None
                    mark = dict(one.headers() or []).get("ce_id")
                    found[one.partition() or 0, one.offset() or 0] = mark.decode() if isinstance(mark, bytes) else ""
        return found


@pytest.fixture(params=["go", "java"])
def example(request: pytest.FixtureRequest, broker: Broker, postgres: Postgres, tmp_path: Path) -> Iterator[Example]:
    made = Example(request.param, broker, postgres, tmp_path)
    yield made
    for member in made.members:
        member.kill()


def test_killed_at_any_time_it_loses_and_doubles_nothing_and_gives_no_receipt_too_early(example: Example) -> None:
    gateway, chance = Gateway(), random.Random(7)  # no secret
    moments: list[tuple[dict[int, int], set[str], set[tuple[int, int]]]] = []
    timeless = Event("urn:dev:mac:0000000000000002", id=99_999, data={"t": 1})
    example.start()
    for start in range(0, KILLS * EVENTS, EVENTS):
        records = gateway.records(readings(EVENTS, start=start))
        for partition in (0, 1):
            some = records[partition::2] + records[: 20 * partition]  # some come twice, also in the other partition
            example.send([*some, some[0], without_header(some[0], "ce_id")], partition)
        example.send([gateway.record(timeless, received=now() - start * DAY // EVENTS * 8)])
        send_aborted(example, Gateway("gw-2", "00000000000000b2").records(readings(20, start=90_000 + start)))
        example.wait_for_rows(start + chance.randrange(1, EVENTS))
        example.members[-1].kill()
        moments.append((example.receipts(), example.marks(), {place[:2] for place in example.refused()}))
        example.start()
        if start == EVENTS:
            example.broker.kill()
            example.broker.start()

    example.wait_for_receipts(example.ends())
    assert example.ids() == [*range(KILLS * EVENTS), 99_999]
    reasons = Counter(reason for _, _, reason in example.refused())
    assert reasons == {"malformed": 2 * KILLS, "id reused": KILLS - 1}
    records_at = example.records()
    for receipts, marks, refused in moments:
        early = {
            place
            for place, mark in records_at.items()
            if place[1] < receipts.get(place[0], 0) and mark not in marks and place not in refused
        }
        assert not early
    assert moments[-1][0]
    for partition, end in example.ends().items():
        assert example.decide(partition, 0, end - 1) == BatchDecision(Verdict.PROCESSED)
    assert example.members[-1].terminate() is not None


def test_what_the_log_has_lost_is_noticed_and_another_topic_stops_it(example: Example) -> None:
    gateway = Gateway()
    for start in (0, 10):  # Kafka keeps each batch whole
        example.send(gateway.records(readings(10, start=start)))
    example.start()
    example.wait_for_receipts({0: 20, 1: 0})
    cut_log(example.broker, example.name, 0, 10)
    example.send(gateway.records(readings(15, start=20)))
    example.wait_for_receipts({0: 25, 1: 0})
    assert example.ids() == list(range(35))
    assert example.decide(0, 0, 24) == BatchDecision(Verdict.PROCESSED)
    example.members[-1].kill()

    example.send(gateway.records(readings(10, start=35)))
    admin = AdminClient({"bootstrap.servers": example.bootstrap_servers})
    place = TopicPartition(example.name, 0, 30)
    admin.delete_records([place])[place].result(30)
    example.start()
    example.wait_for_receipts({0: 35, 1: 0})
    assert example.ids() == [*range(35), *range(40, 45)]
    assert example.decide(0, 25, 34).verdict is Verdict.RETURN  # its gateway sends again what was deleted
    assert example.decide(0, 30, 34) == BatchDecision(Verdict.PROCESSED)

    example.make_topic_anew()
    example.send(gateway.records(readings(50, start=45)))
    assert example.members[-1].wait(WAIT_SECONDS_MAX) == 1
    assert example.start().wait(WAIT_SECONDS_MAX) == 1
    assert len(example.ids()) == 40
    assert example.receipts() == {}


def send_aborted(example: Example, records: Sequence[Record]) -> None:
    producer = Producer({"bootstrap.servers": example.bootstrap_servers, "transactional.id": uuid4().hex})
    producer.init_transactions()
    producer.begin_transaction()
    for one in records:
        producer.produce(example.name, one.value, one.key, 0, headers=[*one.headers])
    producer.flush()
    producer.abort_transaction()
