"""Where one partition has all events of a gateway, it is the one that Kafka's own hash of the gateway's id chooses."""

from dataclasses import replace

import pytest
from confluent_kafka import Message, Producer

from agent.forward.kafka.topic import BY_KEY, murmur2, partition_of
from agent.forward.replay import send_again
from tests.agent.forward.broker import PARTITIONS, KafkaTopic
from tests.agent.forward.checks import forward_all
from tests.agent.forward.events import DEVICES, device, readings
from tests.support.memory_outbox import MemoryOutbox

EVENTS = 40


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # those of Kafka's own test, UtilsTest.testMurmur2
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka(key: str, signed: int) -> None:
    assert murmur2(key.encode()) == signed & 0xFFFFFFFF


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once", "at-most-once"])
def test_one_partition_has_all_events_of_a_gateway_that_is_spread_by_its_id(
    kafka: KafkaTopic, gateway: str, mode: str
) -> None:
    chosen: list[Message] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    producer.produce(kafka.topic, b"{}", gateway, on_delivery=lambda _, message: chosen.append(message))
    producer.flush()
    settings = replace(kafka.settings(mode), spread="gateway")
    outbox = MemoryOutbox(*readings(EVENTS))

    forward_all(settings, outbox, gateway)
    assert send_again(settings, gateway, outbox.stored(), lambda _: None) == EVENTS

    records = [record for record in kafka.records() if record.key() != gateway.encode()]
    assert len(records) == 2 * EVENTS
    assert {record.partition() for record in records} == {chosen[0].partition()}
    assert {record.key() for record in records} == {device(number).encode() for number in range(DEVICES)}
    assert partition_of(settings, gateway, PARTITIONS) == chosen[0].partition()
    assert partition_of(kafka.settings(mode), gateway, PARTITIONS) == BY_KEY
