"""What the oracle reads of a real Kafka: records as they are, the run's own devices, and receipts beside the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import CommitProperties, write_deltalake

from contract.event import Event
from contract.topics import EVENTS
from simulators.evidence import topic
from simulators.evidence.receipts import GROUP, ahead
from simulators.evidence.row import Row
from simulators.ledger import Ledger
from simulators.oracle.casebook import GAP
from simulators.parts.kafka import Broker
from simulators.run.options import Place
from simulators.run.run import judge_there
from simulators.voice import device_name, devices_of
from tests.simulators.tables import columns
from tests.simulators.truth import row_of

pytestmark = pytest.mark.kafka

OURS, OTHERS = device_name(0, run=7), device_name(0, run=8)
EVENTS_OF_THE_RUN = [Event(OURS, id=1, data={"a": 1}), Event(OURS, id="1", data={"a": 1})]
DECLARED = Event("urn:oncegate:gateway:gw1", GAP, "x", data={"labels": [["e", 2, 2]], "count": 1})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        started.create_topics()
        producer = Producer({"bootstrap.servers": started.bootstrap_servers})
        for number, event in enumerate([*EVENTS_OF_THE_RUN, Event(OTHERS, id=1), DECLARED], start=1):
            producer.produce(EVENTS, _value(row_of(event, number)), key=event.device)
        assert producer.flush(60) == 0
        yield started


def _value(record: Row) -> bytes:
    names = ("device", "type", "id", "data", "gateway", "epoch", "sequence", "fingerprint")
    return json.dumps({name: getattr(record, name) for name in names}).encode()


def test_records_keep_the_types_of_their_ids_and_gateways_speak_too(broker: Broker) -> None:
    records = sorted(topic.read(broker.bootstrap_servers), key=lambda record: record.sequence or 0)
    assert [(record.device, record.id, record.gateway) for record in records] == [
        (OURS, 1, "gw1"),
        (OURS, "1", "gw1"),
        (OTHERS, 1, "gw1"),
        (DECLARED.device, "x", "gw1"),
    ]
    assert records[3].data == DECLARED.data


def test_a_run_is_judged_by_its_own_records_on_a_topic_in_use(broker: Broker, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        ledger.begin({"devices": devices_of(7)})
        for event in EVENTS_OF_THE_RUN:
            mark = ledger.tell(event)
            ledger.sent(mark)
            ledger.acked(mark)
    verdict = judge_there(tmp_path / "ledger.jsonl", Place(kafka=broker.bootstrap_servers), complete=True)
    assert (verdict.faults, verdict.rows, verdict.records) == ({}, 2, 2)


def test_receipts_ahead_of_the_table_are_counted(broker: Broker, tmp_path: Path) -> None:
    table = tmp_path / "table"
    (partition,) = {one.partition for one in topic.read(broker.bootstrap_servers) if one.device == OURS}
    assert partition is not None
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP}) as group:
        group.commit(offsets=[TopicPartition(EVENTS, partition, 2)], asynchronous=False)
    assert ahead(broker.bootstrap_servers, table) == 2
    for end, count in ((1, 1), (2, 0), (3, 0)):
        said = CommitProperties(custom_metadata={"userMetadata": json.dumps({"ends": {str(partition): end}})})
        write_deltalake(table, columns([row_of(EVENTS_OF_THE_RUN[0], end)]), mode="append", commit_properties=said)
        assert ahead(broker.bootstrap_servers, table) == count
