"""The search of a real topic by the command `trace`."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from cloud.errors import JobError
from cloud.tracing.facts import Label, Span, Wanted
from cloud.tracing.topic import TracedTopic
from contract.receipt import Receipt
from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, now, readings, send, without_header

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]
COUNT = 20


@pytest.fixture
def topic(broker: Broker) -> Iterator[tuple[str, TracedTopic]]:
    name = f"events.{uuid4().hex}"
    broker.create_topics(name, partitions=2)
    opened = TracedTopic(broker.bootstrap_servers, name, f"{name}-g", {})
    yield name, opened
    opened.close()


def test_a_search_is_bounded_and_says_how_far_back_it_went(broker: Broker, topic: tuple[str, TracedTopic]) -> None:
    name, opened = topic
    gateway = Gateway()
    begin = now()
    records = gateway.records(readings(COUNT))
    for partition in (0, 1):
        send(broker.bootstrap_servers, name, records[partition::2], partition)
    send(broker.bootstrap_servers, name, [without_header(records[0], "ce_oncegate")], 0)
    first = Wanted(dict(records[0].headers)["ce_id"].decode())
    found = opened.search(first, 1_000)
    assert [(one.partition, one.offset, one.label) for one in found.records] == [
        (0, 0, Label("gw-1", gateway.epoch, 1)),
        (0, 10, None),
    ]
    assert found.read_all
    short = opened.search(Wanted(label=Label("gw-1", gateway.epoch, 1)), 8)
    assert (list(short.records), short.read_all) == ([], False)
    assert short.ends == {0: (0, 7, 11), 1: (0, 7, 10)}
    device = "urn:dev:mac:0000000000000001"
    assert len(opened.search(Span(device, begin - 1, None), 1_000).records) == COUNT + 1
    assert not opened.search(Span(device, begin + 3_600_000, None), 1_000).records
    assert not opened.search(Span("urn:other", begin - 1, None), 1_000).records


def test_receipts_are_the_offsets_of_the_group_which_is_not_joined(
    broker: Broker, topic: tuple[str, TracedTopic]
) -> None:
    name, opened = topic
    found = opened.search(Wanted("ff" * 16), 1_000)
    assert (found.read_all, opened.receipts(found, "t")) == (True, {})
    job = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{name}-g"})
    own = TopicPartition(name, 1, 7, str(Receipt("t", 0, found.topic_id)), 0)
    job.commit(offsets=[TopicPartition(name, 0, 9), own], asynchronous=False)
    job.close()
    reset = "it was committed by a foreign consumer or by a reset"
    assert opened.receipts(found, "t") == {0: reset, 1: 7}
    assert opened.receipts(found, "u") == {0: reset, 1: "it is of table t, not of u"}


def test_a_topic_that_does_not_exist_is_told(broker: Broker) -> None:
    opened = TracedTopic(broker.bootstrap_servers, f"none.{uuid4().hex}", "g", {})
    with pytest.raises(JobError, match="none"):
        opened.search(Wanted("ff" * 16), 1_000)
    opened.close()
