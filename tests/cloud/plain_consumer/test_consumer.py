"""The plain consumer on a real broker and a real PostgreSQL, and the failures that dedup alone does not cover."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from cloud import consumer
from cloud.errors import KafkaError
from cloud.plain_consumer.table import ConsumerTable
from cloud.plain_consumer.values import Entry, read_message
from cloud.runtime.unbounded_calls import within
from tests.cloud.gateway import Gateway, Record, readings, without_header
from tests.cloud.plain_consumer.consuming import WAIT_SECONDS_MAX, ConsumerSide
from tests.support.waiting import wait_for_work

pytestmark = pytest.mark.kafka


def test_dead_between_result_and_offset_it_writes_each_event_once(side: ConsumerSide) -> None:
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


def test_a_commit_that_nobody_answers_fails_in_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        quiet = {
            "group.id": "g",
            "log_level": 0,
            "reconnect.backoff.ms": 3_600_000,
            "reconnect.backoff.max.ms": 3_600_000,
        }
        reader = Consumer({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", **quiet})
        place = TopicPartition("t", 0, 5)
        with pytest.raises(KafkaError, match=r"the commit: no answer within 0\.5 s"):
            within(0.5, lambda: reader.commit(offsets=[place], asynchronous=False), "the commit")


def test_a_row_set_back_by_an_operator_loses_no_record_of_a_partition_without_a_row(side: ConsumerSide) -> None:
    """One poll has records of both partitions; its transaction is rolled back, and all of them are read again."""
    gateway = Gateway()
    ends = ("--bootstrap-servers", side.broker.bootstrap_servers, "--topic", side.name, "--group", side.name)
    settings = consumer.parse([*ends, "--connection", str(side.connection), "--table", side.name])
    with ConsumerTable(side.server.connection, side.name, side.name, side.name) as table:
        reader = consumer.Reader(settings, table)
        reader._consumer.subscribe([side.name], on_assign=reader._assigned, on_revoke=reader._lost)
        side.send(gateway.records(readings(10)))
        reader._write(poll(reader, 10))
        side.send(gateway.records(readings(5, start=10)))
        side.send(gateway.records(readings(5, start=15)), partition=1)
        both = poll(reader, 10)
        with psycopg.connect(side.server.connection) as operator:
            operator.execute(f"UPDATE {side.name}_offsets SET next = next - 3 WHERE partition = 0".encode())
        reader._write(both)
        assert side.ids() == list(range(10))

        side.send(gateway.records(readings(1, start=20)), partition=1)
        while not {14, 20} <= set(side.ids()):  # the last record of each partition
            reader._write(poll(reader, 1))
        reader._close()
    assert side.ids() == list(range(21))


def poll(reader: consumer.Reader, count: int) -> list[Entry]:
    """Read at least `count` records."""
    entries: list[Entry] = []
    while len(entries) < count:
        polled = reader._consumer.consume(consumer.BATCH_MESSAGES_MAX, consumer.WAIT_SECONDS)
        entries += [read_message(message) for message in polled if consumer._is_record(message)]
    return entries


@pytest.mark.heavy
def test_records_that_retention_has_eaten_stop_it(side: ConsumerSide) -> None:
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
    assert "no longer has records that the table has not read" in side.members[-1].log()
    assert side.ids() == list(range(10))


def test_a_topic_made_anew_under_a_running_member_stops_it(side: ConsumerSide) -> None:
    gateway = Gateway()
    side.send(gateway.records(readings(10)))
    running = side.start("--kafka", "topic.metadata.refresh.interval.ms=1000")
    side.wait_for_rows(10)
    side.make_topic_anew()
    side.send(gateway.records(readings(30, start=10)))

    assert running.wait(WAIT_SECONDS_MAX) == 1
    assert side.ids() == list(range(10))
    assert side.start().wait(WAIT_SECONDS_MAX) == 1
    assert "recreated" in side.members[-1].log()


@pytest.mark.parametrize("wrong", [("--table", "a b"), ("--commit", "auto")])
def test_wrong_usage_is_refused(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        consumer.parse(["--bootstrap-servers", "k:1", "--connection", "c", "--table", "t", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


class Receiver(BaseHTTPRequestHandler):
    """Record the keys of all calls; return the configured answers."""

    keys: Counter[str]
    answer: Callable[[str], int]

    def do_POST(self) -> None:  # the server's name
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        self.keys[key] += 1
        self.send_response(type(self).answer(key))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the server's name
        pass


@contextmanager
def receiver(answer: Callable[[str], int]) -> Iterator[tuple[str, Counter[str]]]:
    """Yield a URL, and the calls that arrived there."""
    keys: Counter[str] = Counter()
    kind = type("Asked", (Receiver,), {"keys": keys, "answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", keys
        server.shutdown()


def marks(records: list[Record]) -> list[str]:
    return [dict(record.headers)["ce_id"].decode() for record in records]


@pytest.mark.heavy
def test_a_call_that_always_fails_holds_no_other_up_and_is_never_given_up_also_over_a_kill(side: ConsumerSide) -> None:
    records = Gateway().records(readings(150))
    poison = marks(records)[0]
    with receiver(lambda key: 500 if key == poison else 204) as (url, keys):
        side.send(records)
        side.start("--webhook", url).wait_until(lambda: bool(keys[poison]), "a call", WAIT_SECONDS_MAX)
        side.members[-1].kill()
        member = side.start("--webhook", url)
        everything = set(marks(records))
        wait_for_work(member, lambda: len(everything & set(keys)), 150, "events called with", WAIT_SECONDS_MAX)
        wait_for_work(member, lambda: keys[poison], 3, "calls that fail", WAIT_SECONDS_MAX)
        assert set(keys) == everything
        assert member.terminate() == 0
    with psycopg.connect(side.server.connection) as connection:
        left = connection.execute(f"SELECT fingerprint, failures FROM {side.name}_calls".encode()).fetchall()
    assert [fingerprint for fingerprint, _ in left] == [bytes.fromhex(poison)]
