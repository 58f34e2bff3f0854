"""The consumer on a real broker and a real PostgreSQL, and the failures that dedup alone does not cover."""

import os
import re
import signal
import time
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from agent.forward.receipts.rules import PartitionView, Rules, Verdict, View, decide
from agent.store.port import Batch, Offsets
from cloud import audit, consumer, maintenance
from cloud.auditing.settings import parse as audit_settings
from cloud.errors import StopError
from cloud.plain_consumer.metrics import ConsumerMetrics
from cloud.plain_consumer.records import Appended, judge
from cloud.plain_consumer.table import ConsumerTable, Place
from cloud.postgres.connection import connected
from cloud.postgres.sink import PostgresSink
from cloud.stream import receipts
from cloud.stream.group_kafka import headers_of
from cloud.stream.topic_log import LogEnd
from cloud.table.commits import Commit, to_json
from cloud.table.devices import Devices
from cloud.table.layout import STAGED, Reason
from contract import receipt
from contract.event import Event
from simulators.services import ports
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, configure, readings, with_header, without_header
from tests.cloud.plain_consumer.consuming import WAIT_SECONDS_MAX, ConsumerSide
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.guarantee(5)]

DAY = 86_400_000


@pytest.mark.heavy
def test_its_receipts_are_those_that_gateways_accept_whatever_another_has_committed(side: ConsumerSide) -> None:
    side.send(Gateway().records(readings(10)))
    side.start()
    side.wait_for_receipts({0: 10, 1: 0})
    side.members[-1].terminate()
    reader = side.reader()
    reader.commit(offsets=[TopicPartition(side.name, 0, 3), TopicPartition(side.name, 1, 7)], asynchronous=False)
    side.start("--succeeds", "earlier")
    side.wait_for_receipts({0: 10, 1: 0})

    committed = reader.committed([TopicPartition(side.name, p) for p in (0, 1)], timeout=30)
    said = [receipt.parse(one.metadata) for one in committed]
    assert said[0] is not None
    assert said[0].succeeded == ["earlier"]
    epochs = [one.leader_epoch for one in committed]
    partitions = {
        p: PartitionView(one.offset, said[p], ends, epochs[p], epochs[p])
        for p, (one, ends) in enumerate(zip(committed, (10, 0), strict=True))
    }
    view = View(said[0].topic_id, partitions)
    for highest, verdict in ((9, Verdict.PROCESSED), (10, Verdict.RETURN)):
        batch = Batch(1, 10, said[0].topic_id, {0: Offsets(0, highest, epochs[0])})
        assert decide(batch, view, Rules(said[0].table)).verdict is verdict


@pytest.mark.heavy
def test_a_member_that_is_put_out_of_the_group_while_it_writes_doubles_nothing(side: ConsumerSide) -> None:
    """It exceeds max.poll.interval.ms; the partitions have moved, with a batch in progress."""
    side.send(Gateway().records(readings(20)))
    slow = side.start("--kafka", "max.poll.interval.ms=6000")
    side.wait_for_receipts({0: 20, 1: 0})
    with side.locked("_quarantine"):
        side.send(Gateway(sequence=20).records(readings(15, start=20)))
        side.send([without_header(record, "ce_id") for record in Gateway().records(readings(1))])
        side.wait_for_lock()
        other = side.start()
        side.wait("partitions=[0, 1]")
    wait_until(lambda: "stage=rejected" in other.log() + slow.log(), "a refused transaction", WAIT_SECONDS_MAX)
    side.send(Gateway(sequence=40).records(readings(5, start=35)))
    side.wait_for_receipts({0: 41, 1: 0})
    assert side.ids() == list(range(40))
    assert (slow.terminate(), other.terminate()) == (0, 0)


@pytest.mark.heavy
def test_a_place_that_an_operator_has_set_back_is_read_again(side: ConsumerSide, gateway: Gateway) -> None:
    """One poll has records of both partitions; its transaction is rolled back, and all of them are read again."""
    side.send(gateway.records(readings(10)))
    side.start()
    side.wait_for_receipts({0: 10, 1: 0})
    side.select("UPDATE {}_places SET next = next - 3 WHERE partition = 0")
    side.send(gateway.records(readings(5, start=10)))
    side.send(gateway.records(readings(5, start=15)), partition=1)
    side.wait_for_receipts({0: 15, 1: 5})
    assert side.ids() == list(range(20))


@pytest.mark.heavy
def test_records_that_retention_has_deleted_stop_it_until_the_place_is_deleted(side: ConsumerSide) -> None:
    gateway = Gateway()
    side.send(gateway.records(readings(20)))
    side.start()
    side.wait_for_receipts({0: 20, 1: 0})
    side.members[-1].kill()
    side.send(gateway.records(readings(10, start=20)))
    place = TopicPartition(side.name, 0, 25)
    admin = AdminClient({"bootstrap.servers": side.bootstrap_servers})  # kept until the answer has arrived
    admin.delete_records([place])[place].result(30)

    assert side.start().wait(WAIT_SECONDS_MAX) == 1
    assert "has deleted offsets 20 to 24" in side.log()
    side.select("DELETE FROM {}_places WHERE partition = 0")
    side.start()
    side.wait_for_receipts({0: 30, 1: 0})
    assert side.select("SELECT first FROM {}_places WHERE partition = 0") == [(25,)]
    assert side.ids() == [*range(20), *range(25, 30)]


def test_a_record_with_a_header_whose_name_is_no_utf_8_is_malformed() -> None:
    """For it confluent-kafka 2.16 raises this error, and at a second call returns no text at all."""

    def headers() -> None:
        raise SystemError("<method 'headers' of 'Message' objects> returned a result with an exception set")

    [record] = Gateway().records(readings(1))
    found = headers_of(cast("Message", SimpleNamespace(headers=headers)))
    row = judge(record.key, record.value, found, Appended(0, 7, None), seen=datetime.now(UTC), known={}).row
    assert dict(zip(STAGED, row, strict=True))["reason"] is Reason.HEADERS


def test_a_client_that_has_gone_to_a_new_leader_without_asking_it_ends_the_consumer() -> None:
    """The leader of epoch 1 has the first eight of ten records of epoch 0, and others behind them."""
    log: Any = SimpleNamespace(
        topic_id=lambda: "t" * 22,
        ends=lambda _: {0: LogEnd(20, 1)},
        truncations=lambda places: {
            p: "cut" for p, place in places.items() if place.offset > 8 and not place.leader_epoch
        },
    )
    subscription = consumer.Subscription("127.0.0.1:1", "events", "g", None, None, {"log_level": "0"})
    unused: Any = SimpleNamespace(id="t", retention_seconds=0)
    reader = consumer.Reader(subscription, unused, unused, ConsumerMetrics(None))
    reader._log = consumer.PlaceLog(log, "events")
    reader._topic_id, reader._places = "t" * 22, {0: Place(0, 10, 0)}
    read: Any = SimpleNamespace(partition=lambda: 0, offset=lambda: 12, leader_epoch=lambda: 1)
    try:
        with pytest.raises(StopError, match="partition 0: the log was truncated below offset 10: cut"):
            reader._write([read])
    finally:
        reader.close()


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_server_that_ends_in_a_copy_ends_it_in_a_sentence_and_it_goes_on(
    side: ConsumerSide, how: signal.Signals
) -> None:
    side.send(Gateway().records(readings(20_000)))
    member = side.start()
    with psycopg.connect(side.server.connection, autocommit=True) as connection:
        copies = "SELECT FROM pg_stat_progress_copy WHERE tuples_processed > 0"
        member.wait_until(lambda: bool(connection.execute(copies).fetchall()), "a copy", WAIT_SECONDS_MAX, 0.001)
        os.kill(side.server.process.pid, how)
    side.server.process.wait(WAIT_SECONDS_MAX)
    assert member.wait(WAIT_SECONDS_MAX) == 1
    side.server.start()
    assert ("stage=failed error='PostgreSQL: " in side.log(), "Traceback" in side.log()) == (True, False)
    side.start()
    side.wait_for_receipts({0: 20_000, 1: 0})
    assert side.ids() == list(range(20_000))


@pytest.mark.heavy
@pytest.mark.parametrize("by", ["HASH (fingerprint)", "RANGE (day)"])
def test_a_table_that_was_partitioned_is_served_where_its_key_is_still_the_fingerprint(
    side: ConsumerSide, by: str, gateway: Gateway
) -> None:
    first = gateway.records(readings(10))
    side.send(first)
    side.start()
    side.wait_for_receipts({0: 10, 1: 0})
    side.members[-1].terminate()
    key, part = {
        "HASH (fingerprint)": ("fingerprint", "FOR VALUES WITH (MODULUS 1, REMAINDER 0)"),
        "RANGE (day)": ("fingerprint, day", "DEFAULT"),
    }[by]
    [(comment,)] = side.select("SELECT obj_description('{}'::regclass, 'pg_class')")
    side.select(f"""ALTER TABLE {{0}} RENAME TO {{0}}_old;
        CREATE TABLE {{0}} (LIKE {{0}}_old, PRIMARY KEY ({key})) PARTITION BY {by};
        CREATE TABLE {{0}}_part PARTITION OF {{0}} {part}; CREATE INDEX ON {{0}} USING brin (received);
        INSERT INTO {{0}} SELECT * FROM {{0}}_old; COMMENT ON TABLE {{0}} IS '{comment}'""")
    side.send([*first[:5], *gateway.records(readings(5, start=10))])
    member = side.start()
    if by == "RANGE (day)":
        assert member.wait(WAIT_SECONDS_MAX) == 1
        assert "no unique key of the fingerprint alone" in side.log()
        return
    side.wait_for_receipts({0: 20, 1: 0})
    assert side.ids() == list(range(15))
    options = ("--sink", "postgres", "--connection", str(side.connection), "--table", side.name)
    assert maintenance.main(options) == 0


def test_a_compacted_topic_is_refused(side: ConsumerSide) -> None:
    configure(side.broker, side.name, "cleanup.policy", "compact")
    side.send(Gateway().records(readings(3)))
    assert side.start().wait(WAIT_SECONDS_MAX) == 1
    assert "Kafka compacts it" in side.log()
    assert (side.ids(), side.receipts()) == ([], {})


def test_its_metrics_have_the_lag_and_its_receipts_are_repeated(
    side: ConsumerSide, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In this process, with small batches and an hour of a second."""
    monkeypatch.setattr(consumer, "BATCH_MESSAGES_MAX", 8)
    monkeypatch.setattr(receipts, "REPEAT_SECONDS", 1.0)
    caplog.set_level("INFO")
    side.send(Gateway().records(readings(20)))
    (port,) = ports.free(1)
    metrics, lags = ConsumerMetrics(("127.0.0.1", port)), []

    def is_enough() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:  # as Prometheus does
            lags.append(float(re.findall(r"^oncegate_cloud_lag_records (.*)", answer.read().decode(), re.MULTILINE)[0]))
        ends = re.findall("stage=receipt offsets=(.*)", caplog.text)
        return ends.count("20") >= 3

    what = consumer.Subscription(side.bootstrap_servers, side.name, side.name, None, None, {})
    with connected(side.server.connection) as connection:
        table = ConsumerTable(connection, side.name, f"{side.name}_quarantine", DAY)
        stop: Any = SimpleNamespace(is_set=is_enough)
        consumer.Reader(what, table, dict, metrics).run(stop)
    assert [lag for lag, _ in groupby(lags)] == [0, 12, 4, 0]


@pytest.mark.spark
@pytest.mark.heavy
def test_the_audit_accounts_for_its_table_as_for_the_jobs(
    side: ConsumerSide, spark: SparkSession, tmp_path: Path
) -> None:
    devices = tmp_path / "devices.csv"
    devices.write_text("device,name,site\nurn:dev:mac:0000000000000001,boiler,\n")
    gateway, now = Gateway(), time.time_ns() // 1_000_000
    reused = Event("counter", id=1, data={"n": 1})
    records = [gateway.record(reused, now - 30 * DAY), *gateway.records(readings(20)), gateway.record(reused, now)]
    side.send([*records, records[3], with_header(gateway.record(readings(1)[0]), "ce_oncegate", b"x")])
    side.start("--devices", str(devices))
    side.wait_for_receipts({0: 24, 1: 0})
    reasons = side.select("SELECT reason FROM {}_quarantine ORDER BY reason")
    assert reasons == [("headers",), ("id_reused",)]
    assert side.select("SELECT DISTINCT device_name, site FROM {} ORDER BY 1") == [("boiler", None), (None, None)]
    ends = ["--bootstrap-servers", side.bootstrap_servers, "--topic", side.name, "--group", side.name]
    place = ["--sink", "postgres", "--connection", str(side.connection), "--table", side.name]
    findings = audit.audit(spark, audit_settings([*ends, *place, "--output", str(tmp_path / "audit")]))
    assert findings.is_whole
    side.members[-1].terminate()
    with pytest.raises(StopError, match="oncegate-cloud consumer"):
        PostgresSink(side.server.connection, side.name, f"{side.name}_quarantine", Devices(spark, None), DAY)


def test_a_table_of_a_newer_consumer_is_continued_and_that_of_a_job_is_refused(postgres: Postgres) -> None:
    name = f"c{uuid4().hex}"
    owned = f"UPDATE {name}_owner SET metadata = %s".encode()
    with psycopg.connect(postgres.connection, autocommit=True) as connection:
        given = (connection, name, f"{name}_quarantine", DAY)
        made = ConsumerTable(*given)
        connection.execute(owned, ('{"newer":1,"oncegate":"consumer"}',))
        assert ConsumerTable(*given).id == made.id
        connection.execute(owned, (to_json(Commit(made.id, "c", 1, 0, "t", "i", {}, {}, {})),))
        with pytest.raises(StopError, match="a job writes it"):
            ConsumerTable(*given)
