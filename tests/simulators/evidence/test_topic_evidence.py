"""The evidence from Kafka: records, the run's own devices, and receipts compared with the table."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from deltalake import CommitProperties, write_deltalake

from contract import topics
from contract.event import Event
from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS
from simulators.evidence import topic
from simulators.evidence.receipts import ahead
from simulators.evidence.row import Row
from simulators.evidence.topic import Topic, TopicError
from simulators.judge.remote import judge_remote_run
from simulators.judge.sink import Sink
from simulators.oracle.evidence_database import GAP
from simulators.payloads import device_name, devices_of
from simulators.run.options import parse
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.simulators.oracle.delta_tables import columns
from tests.simulators.oracle.judged_field import row_of, write_ledger_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka
PASSWORD = "not-told-to-anybody"
OURS, OTHERS = device_name(0, run=7), device_name(0, run=8)
EVENTS_OF_THE_RUN = [Event(OURS, id=1, data={"a": 1}), Event(OURS, id="1", data={"a": 1})]
TWO_EVENTS = [Event(OURS, id=1), Event(OURS, id=2)]
DECLARED = Event("urn:oncegate:gateway:gw1", GAP, "x", data={"labels": [["e", 2, 2]], "count": 1})


@pytest.fixture(scope="module")
def broker_and_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Yield a broker with records of the run, and the port of its listener with authentication."""
    (port,) = ports.free(1)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    scram = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.second.scram-sha-512.sasl.jaas.config": module,
    }
    listener = Listener("SASL_PLAINTEXT", port, port, scram)
    with Broker(tmp_path_factory.mktemp("kafka"), listener, scram={"witness": PASSWORD}) as started:
        started.create_topics()
        producer = Producer({"bootstrap.servers": started.bootstrap_servers})
        for number, event in enumerate([*EVENTS_OF_THE_RUN, Event(OTHERS, id=1), DECLARED], start=1):
            producer.produce(EVENTS, _value(row_of(event, number)), key=event.device)
        assert producer.flush(60) == 0
        yield started, port


@pytest.fixture
def broker(broker_and_port: tuple[Broker, int]) -> Broker:
    return broker_and_port[0]


@pytest.mark.guarantee(4)
def test_the_topic_has_the_settings_of_the_promise(broker: Broker) -> None:
    resource = ConfigResource(ResourceType.TOPIC, EVENTS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.describe_configs([resource])[resource].result(timeout=60)
    assert {name: found[name].value for name in topics.settings(1)} == topics.settings(1)
    assert len(admin.list_topics(timeout=60).topics[EVENTS].partitions) == topics.PARTITIONS


def _value(record: Row) -> bytes:
    names = ("device", "type", "id", "data", "gateway", "epoch", "sequence", "fingerprint")
    return json.dumps({name: getattr(record, name) for name in names}).encode()


@pytest.mark.heavy
def test_records_keep_the_types_of_their_ids_and_gateways_speak_too(broker: Broker) -> None:
    records = sorted(topic.read(Topic(broker.bootstrap_servers)), key=lambda record: record.sequence or 0)
    assert [(record.device, record.id, record.gateway) for record in records] == [
        (OURS, 1, "gw1"),
        (OURS, "1", "gw1"),
        (OTHERS, 1, "gw1"),
        (DECLARED.device, "x", "gw1"),
    ]
    assert records[3].data == DECLARED.data


def _played(folder: Path, events: Sequence[Event] = EVENTS_OF_THE_RUN, **noted: object) -> Path:
    return write_ledger_of(folder / "ledger.jsonl", events, {"devices": devices_of(7), **noted})


def test_a_run_is_judged_by_its_own_records_on_a_topic_in_use(broker: Broker, tmp_path: Path) -> None:
    verdict = judge_remote_run(_played(tmp_path), Sink(topic=Topic(broker.bootstrap_servers)))
    assert (verdict.faults, verdict.rows, verdict.records) == ({}, 2, 2)


def test_records_that_are_no_events_are_skipped_and_counted(broker: Broker, tmp_path: Path) -> None:
    shared = Topic(broker.bootstrap_servers, "shared")
    broker.create_topics(shared.name, partitions=1)
    event = json.loads(_value(row_of(TWO_EVENTS[0])))
    broken = [{**event, name: value} for name, value in (("device", None), ("sequence", "2"), ("data", [1]))]
    malformed = [None, b"", b"no JSON", b"17", b"[]", b"{}", b"\xff", *(json.dumps(one).encode() for one in broken)]
    producer = Producer({"bootstrap.servers": shared.bootstrap_servers})
    for value in (*malformed, *(_value(row_of(one, number)) for number, one in enumerate(TWO_EVENTS, start=1))):
        producer.produce(shared.name, value)
    assert producer.flush(60) == 0
    verdict = judge_remote_run(_played(tmp_path, TWO_EVENTS), Sink(topic=shared))
    assert (verdict.kept, verdict.records, verdict.malformed) == (True, 2, len(malformed))
    # A local run's broker has no other writer.
    with pytest.raises(TopicError, match=f"{len(malformed)} malformed records"):
        list(topic.read(shared))


@pytest.fixture
def old(broker: Broker) -> Iterator[Topic]:
    """Yield a topic of one partition whose first two of four records are deleted, one of them of the run."""
    topic_ = Topic(broker.bootstrap_servers, "old")
    broker.create_topics(topic_.name, partitions=1)
    admin = AdminClient({"bootstrap.servers": topic_.bootstrap_servers})
    producer = Producer({"bootstrap.servers": topic_.bootstrap_servers})
    for number, event in enumerate([Event(OTHERS, id=1), *TWO_EVENTS, Event(OTHERS, id=2)], start=1):
        producer.produce(topic_.name, _value(row_of(event, number)), key=event.device)
    assert producer.flush(60) == 0
    for deleted in admin.delete_records([TopicPartition(topic_.name, 0, 2)]).values():
        deleted.result(60)
    yield topic_
    for gone in admin.delete_topics([topic_.name], operation_timeout=60).values():
        gone.result(60)


@pytest.mark.guarantee(0)
def test_what_is_left_of_a_topic_is_read_and_that_its_beginning_is_missing_is_said(old: Topic, tmp_path: Path) -> None:
    with topic.reading(old) as opened:
        assert opened.cut == {0}
        assert [(record.device, record.offset) for record in opened.records] == [(OURS, 2), (OTHERS, 3)]
    verdict = judge_remote_run(_played(tmp_path, TWO_EVENTS), Sink(topic=old))
    assert (verdict.faults, verdict.kept, verdict.records, verdict.cut, verdict.unknown) == ({}, False, 1, (0,), 1)
    with pytest.raises(TopicError, match=r"retention has deleted the beginning of partitions \[0\]"):
        list(topic.read(old))


def test_what_was_deleted_from_before_the_run_is_nothing_of_the_run(old: Topic, tmp_path: Path) -> None:
    for end, cut in ((1, (0,)), (2, ())):
        folder = tmp_path / str(end)
        folder.mkdir()
        ledger = _played(folder, TWO_EVENTS, topic={"name": old.name, "ends": {"0": end}})
        verdict = judge_remote_run(ledger, Sink(topic=old))
        assert (verdict.cut, verdict.records) == (cut, 1)
        assert verdict.faults == ({} if cut else {"lost": 1})


def test_a_topic_that_ends_before_the_run_began_is_another_one(old: Topic, tmp_path: Path) -> None:
    ledger = _played(tmp_path, topic={"name": old.name, "ends": {"0": 5}})
    with pytest.raises(TopicError, match="partition 0 ended at offset 5 before"):
        judge_remote_run(ledger, Sink(topic=old))


def test_records_that_are_deleted_while_they_are_read_are_no_end(old: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "_watermarks", lambda *_: {0: (0, 4)})  # what was true before they were deleted
    with pytest.raises(TopicError, match="while they were read"), topic.reading(old) as opened:
        list(opened.records)


def test_a_password_for_the_topic_comes_from_a_file_of_its_owner(
    broker_and_port: tuple[Broker, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, port = broker_and_port
    file = tmp_path / "kafka.properties"
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=witness")
    run = ["quiet-house", "--target", "coap://gw", "--target", "http://gw", "--kafka", f"127.0.0.1:{port}"]
    for password, records in (("wrong", None), (PASSWORD, 2)):
        file.write_text("\n".join((*lines, f"sasl.password={password}")))
        file.chmod(0o600)
        sink = parse([*run, "--kafka-properties", str(file)], "oncegate-sim run").sink
        assert sink.topic is not None
        assert password not in repr(sink)
        if records is None:
            with pytest.raises(TopicError) as refused:
                judge_remote_run(_played(tmp_path), replace(sink, topic=replace(sink.topic, answer_seconds_max=2.0)))
            assert "wrong" not in str(refused.value)
            assert "uthentication failed" in str(refused.value)
            (tmp_path / "ledger.jsonl").unlink()
        else:
            verdict = judge_remote_run(_played(tmp_path), sink)
            assert (verdict.records, verdict.of_topic) == (records, True)
    file.chmod(0o640)
    with pytest.raises(SystemExit):
        parse([*run, "--kafka-properties", str(file)], "oncegate-sim run")
    assert "others may read it (mode 640)" in capfd.readouterr().err


def test_what_the_client_refuses_is_told_and_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TopicError, match="No such configuration property"):
        Topic("127.0.0.1:1", properties={"security.protocl": "SSL"}).ends()
    with pytest.raises(TopicError, match=r"kafka: oncegate.events at 127\.0\.0\.1:1"):
        Topic("127.0.0.1:1", answer_seconds_max=0.2).ends()
    table = tmp_path / "table"
    with pytest.raises(TopicError, match="receipts of"):
        ahead("127.0.0.1:1", table, answer_seconds_max=0.2)
    assert capfd.readouterr().err == ""


def test_receipts_ahead_of_the_table_are_counted(broker: Broker, tmp_path: Path) -> None:
    table = tmp_path / "table"
    (partition,) = {one.partition for one in topic.read(Topic(broker.bootstrap_servers)) if one.device == OURS}
    assert partition is not None
    receipt = TopicPartition(EVENTS, partition, 2)
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP_DEFAULT}) as group:
        group.commit(offsets=[receipt])  # not synchronously, which has no time limit
        wait_until(lambda: group.committed([receipt], timeout=60)[0].offset == 2, "the offset is committed")
    assert ahead(broker.bootstrap_servers, table) == 2
    for end, count in ((1, 1), (2, 0), (3, 0)):
        said = CommitProperties(custom_metadata={"userMetadata": json.dumps({"ends": {str(partition): end}})})
        write_deltalake(table, columns([row_of(EVENTS_OF_THE_RUN[0], end)]), mode="append", commit_properties=said)
        assert ahead(broker.bootstrap_servers, table) == count
