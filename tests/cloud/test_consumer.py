"""The plain consumer on a real broker and a real PostgreSQL, and the failures that dedup alone does not cover."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cloud import consumer
from cloud.consumer_table import Commit
from simulators.parts.kafka import Broker
from simulators.parts.postgres import Postgres
from simulators.parts.process import Command, Process
from tests.cloud.gateway import Gateway, Record, readings, send, without_header

pytestmark = pytest.mark.kafka

WAIT_SECONDS_MAX = 120.0
ROOT = Path(__file__).resolve().parents[2]


class Side:
    """A topic of two partitions, a table, and the members of one group."""

    def __init__(self, broker: Broker, server: Postgres, folder: Path, name: str) -> None:
        self.broker = broker
        self.server = server
        self.folder = folder
        self.name = name
        self.members: list[Process] = []
        self.connection = server.write_connection(folder / "connection")
        broker.create_topics(name, partitions=2)

    def send(self, records: list[Record], partition: int = 0) -> None:
        send(self.broker.bootstrap_servers, self.name, records, partition)

    def start(self, *options: str) -> Process:
        ends = ("--bootstrap-servers", self.broker.bootstrap_servers, "--topic", self.name, "--group", self.name)
        place = ("--connection", str(self.connection), "--table", self.name)
        quick = ("--kafka", "session.timeout.ms=6000", "--kafka", "heartbeat.interval.ms=500")
        command = (sys.executable, "-m", "cloud.consumer", *ends, *place, *quick, *options)
        log = self.folder / f"member-{len(self.members)}.log"
        member = Process(Command("consumer", command, log, ROOT))
        member.start()
        self.members.append(member)
        return member

    def wait(self, text: str) -> None:
        self.members[-1].wait_for_log(text, WAIT_SECONDS_MAX)

    def wait_for_rows(self, count: int) -> None:
        self.members[-1].wait_until(lambda: len(self.ids()) >= count, f"{count} rows", WAIT_SECONDS_MAX)

    def ids(self) -> list[int]:
        with psycopg.connect(self.server.connection) as connection:
            exists = connection.execute("SELECT to_regclass(%s)", (self.name,)).fetchone()
            if exists is None or exists[0] is None:
                return []
            return sorted(int(row[0]) for row in connection.execute(f"SELECT id FROM {self.name}".encode()))

    @contextmanager
    def locked(self, suffix: str) -> Iterator[None]:
        """Hold whoever wants to write into one of the tables."""
        with psycopg.connect(self.server.connection) as connection:
            connection.execute(f"LOCK {self.name}{suffix} IN SHARE MODE".encode())
            yield


@pytest.fixture
def side(broker: Broker, postgres: Postgres, tmp_path: Path) -> Iterator[Side]:
    made = Side(broker, postgres, tmp_path, f"c{uuid4().hex}")
    yield made
    for member in made.members:
        member.kill()


def test_dead_between_result_and_offset_it_writes_each_event_once(side: Side) -> None:
    gateway = Gateway()
    first = gateway.records(readings(20))
    side.send(first)
    side.start()
    side.wait_for_rows(20)
    with side.locked("_offsets"):
        side.send([*gateway.records(readings(15, start=20)), *first[:5], without_header(first[0], "ce_id")])
        side.wait("stage=result rows=15")
        side.members[-1].kill()
    assert side.ids() == list(range(20))
    side.start()
    side.wait_for_rows(35)
    side.wait("stage=committed")
    assert side.ids() == list(range(35))
    with psycopg.connect(side.server.connection) as connection:
        reasons = connection.execute(f"SELECT reason FROM {side.name}_quarantine".encode()).fetchall()
    assert len(reasons) == 1
    assert side.members[-1].terminate() == 0


@pytest.mark.heavy
def test_offsets_first_lose_what_was_in_work(side: Side) -> None:
    side.send(Gateway().records(readings(20)))
    side.start("--commit", "before")
    side.wait_for_rows(20)
    with side.locked(""):
        side.send(Gateway(sequence=20).records(readings(15, start=20)))
        side.wait("stage=offsets records=15")
        side.members[-1].kill()
    side.send(Gateway(sequence=40).records(readings(1, start=40)))
    side.start("--commit", "before")
    side.wait_for_rows(21)
    assert side.ids() == [*range(20), 40]


@pytest.mark.heavy
def test_auto_commit_writes_again_what_came_since(side: Side) -> None:
    side.send(Gateway().records(readings(20)))
    options = ("--commit", "auto", "--kafka", "auto.commit.interval.ms=3600000")
    side.start(*options)
    side.wait_for_rows(20)
    side.members[-1].kill()
    side.start(*options)
    side.wait_for_rows(40)
    assert side.ids() == sorted([*range(20), *range(20)])


@pytest.mark.heavy
def test_a_member_that_was_thrown_out_commits_nothing(side: Side) -> None:
    """It sleeps in the middle of its work for longer than the group waits: another member does that work."""
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    sleeper = side.start()
    side.wait_for_rows(10)
    with side.locked("_offsets"):
        side.send(gateway.records(readings(7, start=10)))
        side.wait("stage=result rows=7")
        sleeper.pause()
        side.start()
        side.wait("stage=assigned partitions=[0, 1]")  # the session of the sleeper has timed out
        with psycopg.connect(side.server.connection, autocommit=True) as connection:
            # The sleeper's transaction would hold the other up for as long as it sleeps: a server ends such.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND query LIKE '%%INSERT INTO%%'"
            )
    side.wait_for_rows(17)
    side.send(gateway.records(readings(5, start=17)))
    side.wait_for_rows(22)
    sleeper.resume()
    assert sleeper.wait(WAIT_SECONDS_MAX) == 1  # its connection is gone; a supervisor starts it again
    assert side.ids() == list(range(22))


@pytest.mark.heavy
def test_a_stale_member_is_rejected_and_reads_on(side: Side) -> None:
    """max.poll.interval exceeded: it still lives, works on, and learns at its commit that it has been overtaken."""
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    slow = side.start("--kafka", "max.poll.interval.ms=7000")
    side.wait_for_rows(10)
    with psycopg.connect(side.server.connection) as overtaker:
        # Locked as another member's transaction would, which then commits the same records.
        overtaker.execute(f"LOCK {side.name}_offsets IN SHARE ROW EXCLUSIVE MODE".encode())
        side.send(gateway.records(readings(7, start=10)))
        side.wait("stage=result rows=7")
        slow.wait_for_log("MAXPOLL", WAIT_SECONDS_MAX)
        overtaker.execute(f"UPDATE {side.name}_offsets SET next = next + 7 WHERE partition = 0".encode())
    slow.wait_for_log("stage=rejected", WAIT_SECONDS_MAX)
    side.send(gateway.records(readings(1, start=50)))
    side.wait_for_rows(11)
    assert side.ids() == [*range(10), 50]  # the overtaker wrote no rows, so these are the slow one's alone


def test_records_that_retention_has_eaten_stop_it(side: Side) -> None:
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    side.start()
    side.wait_for_rows(10)
    side.members[-1].kill()
    side.send(gateway.records(readings(10, start=10)))
    admin = AdminClient({"bootstrap.servers": side.broker.bootstrap_servers})
    place = TopicPartition(side.name, 0, 15)
    admin.delete_records([place])[place].result(WAIT_SECONDS_MAX)

    assert side.start().wait(WAIT_SECONDS_MAX) == 1
    assert "no longer has what the table has not read" in side.members[-1].log()
    assert side.ids() == list(range(10))


@pytest.mark.heavy
def test_the_only_member_dies_and_the_next_goes_on(side: Side) -> None:
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    side.start()
    side.wait_for_rows(10)
    side.members[-1].kill()
    side.send(gateway.records(readings(10, start=10)), partition=1)
    side.start()
    side.wait_for_rows(20)
    assert side.ids() == list(range(20))


@pytest.mark.heavy
def test_a_webhook_that_dies_on_the_way_is_called_again_under_the_same_key(side: Side) -> None:
    keys: list[str] = []
    refuse = threading.Event()
    refuse.set()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the server's name
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            self.send_response(503 if refuse.is_set() else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the server's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        records = Gateway().records(readings(3))
        side.send(records)
        url = ("--webhook", f"http://127.0.0.1:{server.server_port}/")
        side.start(*url)
        side.members[-1].wait_until(lambda: bool(keys), "a call", WAIT_SECONDS_MAX)
        side.members[-1].kill()
        refuse.clear()
        side.start(*url)
        marks = {dict(record.headers)["ce_id"].decode() for record in records}
        side.members[-1].wait_until(
            lambda: side.members[-1].log().count("stage=called") == 3, "3 calls", WAIT_SECONDS_MAX
        )
        server.shutdown()
    assert len(keys) > 3
    assert set(keys) == marks


@pytest.mark.parametrize("wrong", [("--table", "a b"), ("--commit", "never"), ("--commit", "auto", "--webhook", "x")])
def test_wrong_usage_is_refused(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        consumer.parse(["--bootstrap-servers", "k:1", "--connection", "c", "--table", "t", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_the_default_is_the_transaction() -> None:
    given = consumer.parse(["--bootstrap-servers", "k:1", "--connection", "c", "--table", "t"])
    assert given.commit is Commit.TRANSACTION
