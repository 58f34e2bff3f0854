"""The plain consumer as its users run it: members of one group, a topic, a table in PostgreSQL."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cloud.stream.group_kafka import metadata_of
from contract.receipt import parse
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from simulators.services.process import Command, Process
from tests.cloud.gateway import Record, send
from tests.support.waiting import wait_for_work

WAIT_SECONDS_MAX = 120.0
ROOT = Path(__file__).resolve().parents[3]


class ConsumerSide:
    """A topic of two partitions, a table, and the members of one group."""

    def __init__(self, broker: Broker, server: Postgres, folder: Path, name: str) -> None:
        self.broker = broker
        self.bootstrap_servers = broker.bootstrap_servers
        """Where the members log in."""
        self.server = server
        self.folder = folder
        self.name = name
        self.members: list[Process] = []
        self.connection = server.write_connection(folder / "connection")
        broker.create_topics(name, partitions=2)

    def send(self, records: list[Record], partition: int = 0) -> None:
        send(self.broker.bootstrap_servers, self.name, records, partition)

    def start(self, *options: str) -> Process:
        ends = ("--bootstrap-servers", self.bootstrap_servers, "--topic", self.name, "--group", self.name)
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
        wait_for_work(self.members[-1], lambda: len(self.ids()), count, "rows", WAIT_SECONDS_MAX)

    def ids(self) -> list[int]:
        if self.select(f"SELECT to_regclass('{self.name}')") == [(None,)]:
            return []
        return sorted(int(row[0]) for row in self.select("SELECT id FROM {} WHERE type NOT LIKE 'gateway.%'"))

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement, with {} for the table's name."""
        with psycopg.connect(self.server.connection) as connection:
            found = connection.execute(statement.format(self.name).encode())
            return found.fetchall() if found.description else []

    def log(self) -> str:
        return self.members[-1].log()

    def reader(self) -> Consumer:
        """Return a client of the group that is no member."""
        return Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": self.name})

    def receipts(self) -> dict[int, int]:
        """Return the offsets of those commits that are receipts."""
        return {partition: offset for partition, (offset, _) in self.noted().items()}

    def noted(self) -> dict[int, tuple[int, bool]]:
        """Return the offsets of receipts, and whether they say that effects fail."""
        try:
            with self.reader() as reader:
                found = reader.committed([TopicPartition(self.name, partition) for partition in (0, 1)], timeout=30)
        except KafkaException:  # a coordinator that has just been elected
            return {}
        read = [(one, parse(metadata_of(one))) for one in found if one.offset >= 0]
        return {one.partition: (one.offset, it.failing_since is not None) for one, it in read if it is not None}

    def receipted(self) -> int:
        """Return the receipted offset of the first partition."""
        return self.receipts().get(0, 0)

    def wait_for_receipts(self, wanted: dict[int, int]) -> None:
        self.members[-1].wait_until(lambda: self.receipts() == wanted, f"receipts {wanted}", WAIT_SECONDS_MAX)

    def wait_for_lock(self) -> None:
        waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        self.members[-1].wait_until(lambda: self.select(waiting) == [(True,)], "a lock", WAIT_SECONDS_MAX)

    @contextmanager
    def locked(self, suffix: str) -> Iterator[None]:
        with psycopg.connect(self.server.connection) as connection:
            connection.execute(f"LOCK {self.name}{suffix} IN SHARE MODE".encode())
            yield
