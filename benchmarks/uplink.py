"""Measure the bytes that an event takes on the uplink to Kafka, by compression and by the size of a burst.

The producer is the agent's, and counts what it sends to a real broker (`txbytes`, with the heads of requests and
without those of TCP and TLS). The readings are of 20 sensors of one gateway: a half sends a temperature, as a CoAP
sensor, the other half what a Zigbee climate sensor reports; each changes by small steps, as the real ones do. The load
of the machine changes the bytes of large bursts by some percent, since it decides how they are divided into requests.
The CPU time is that of this process, with the client's threads and the making of the records, the same for all.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from confluent_kafka import Producer

from agent.config.settings import KafkaSettings
from agent.forward.kafka.client import producer_config
from benchmarks import report
from benchmarks.report import Figure
from contract.event import Event, Value
from simulators.certify.records import Record, RecordSource
from simulators.payloads import device_name
from simulators.services.kafka.broker import Broker

SENSORS = 20
BURSTS = (1, 20, 1_000)
"""Events that are sent at a time: one as it arrives, a report of all sensors, a batch of a backlog."""
EVENTS = {1: 500, 20: 4_000, 1_000: 20_000}
CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
START_MS = 1_763_700_000_000
STEP_MS = 3_000
STATISTICS_MS = 100
SEED = 7


def readings() -> Iterator[Event]:
    """Yield the events of all sensors in turn, endlessly."""
    chance = random.Random(SEED)
    steps = dict.fromkeys(("temperature", "humidity", "pressure"), 0)
    states = [dict(steps) for _ in range(SENSORS)]
    number = 0
    while True:
        sensor, time_ms = number % SENSORS, START_MS + number * STEP_MS
        state = states[sensor]
        for name in state:
            state[name] = max(-40, min(40, state[name] + chance.choice((-1, 0, 0, 1))))
        data: dict[str, Value] = {"temperature": 21 + state["temperature"] / 10}
        if sensor % 2:
            data |= {"humidity": 45 + state["humidity"] / 4, "pressure": 1013 + state["pressure"] / 2}
            data |= {"battery": 100 - number // 5_000, "voltage": 3_000, "power_outage_count": 17}
        yield Event(device_name(sensor), id=number // SENSORS, time=time_ms if sensor % 2 else None, data=data)
        number += 1


def records() -> Iterator[Record]:
    """Yield the records of the events, as a gateway sends them."""
    source = RecordSource("gw-1", "7d1f3a9c5be20846")
    for number, event in enumerate(readings(), 1):
        via = "coap" if event.time is None else "zigbee2mqtt"
        yield source.record(event, START_MS + number * STEP_MS + 40, via=via)


def cost_of_each_event(broker: Broker, codec: str, burst: int) -> tuple[float, float]:
    """Send the events in bursts; return the bytes that were sent and the microseconds of CPU time for each."""
    topic = f"uplink.{codec}.{burst}"
    broker.create_topics(topic)
    sent: list[int] = []
    settings = KafkaSettings(broker.bootstrap_servers, topic, properties={"compression.type": codec})
    config = producer_config(settings, {"acks": "all", "enable.idempotence": "true", "partitioner": "murmur2_random"})
    config |= {"statistics.interval.ms": STATISTICS_MS, "stats_cb": lambda text: sent.append(_sent(text))}
    producer = Producer(config)
    source = records()
    _produce(producer, topic, islice(source, burst))  # connections and metadata are not counted
    before = _settled(producer, sent)
    started = time.process_time()
    for _ in range(EVENTS[burst] // burst):
        _produce(producer, topic, islice(source, burst))
    seconds = time.process_time() - started
    return (_settled(producer, sent) - before) / EVENTS[burst], seconds * 1e6 / EVENTS[burst]


def _produce(producer: Producer, topic: str, records: Iterator[Record]) -> None:
    for record in records:
        producer.produce(topic, record.value, record.key, headers=list(record.headers))
    if producer.flush(60):
        raise RuntimeError(f"topic {topic}: Kafka has not accepted all records")


def _settled(producer: Producer, sent: list[int]) -> int:
    """Return the bytes of statistics that were made after everything was acknowledged."""
    known, deadline = len(sent), time.monotonic() + 60
    while len(sent) < known + 2:
        if time.monotonic() > deadline:
            raise RuntimeError("the producer yields no statistics")
        producer.poll(0.05)
    return sent[-1]


def _sent(text: str) -> int:
    return sum(int(one["txbytes"]) for one in json.loads(text)["brokers"].values())


def main() -> None:
    """Measure all codecs with all bursts, and write the JSON."""
    figures = []
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        for burst in BURSTS:
            for codec in CODECS:
                size, micros = cost_of_each_event(broker, codec, burst)
                figures.append(Figure(f"{codec}, bursts of {burst}", size, "bytes/event", details={"cpu_us": micros}))
    value = sum(len(record.value) for record in islice(records(), 1_000)) / 1_000
    report.conclude("uplink", figures, sensors=SENSORS, value_bytes=value, events=EVENTS, seed=SEED)


if __name__ == "__main__":
    main()
