"""The plain consumer as its users run it: members of one group, a topic, a table in PostgreSQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient

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
        with psycopg.connect(self.server.connection) as connection:
            exists = connection.execute("SELECT to_regclass(%s)", (self.name,)).fetchone()
            if exists is None or exists[0] is None:
                return []
            return sorted(int(row[0]) for row in connection.execute(f"SELECT id FROM {self.name}".encode()))

    def make_topic_anew(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        admin.delete_topics([self.name], operation_timeout=30)[self.name].result(WAIT_SECONDS_MAX)
        self.broker.create_topics(self.name, partitions=2)

    @contextmanager
    def locked(self, suffix: str) -> Iterator[None]:
        """Block all writes to one of the tables."""
        with psycopg.connect(self.server.connection) as connection:
            connection.execute(f"LOCK {self.name}{suffix} IN SHARE MODE".encode())
            yield
