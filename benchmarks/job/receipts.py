"""The age of a receipt: from a record's append in Kafka to the committed offset that covers it."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import quantiles

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.cloud import topic
from benchmarks.cloud.runs import RUN_SECONDS_MAX, STATE_AGE_SECONDS, Bench, committed, ending
from benchmarks.report import Figure, against
from simulators.services.error import ServiceError
from simulators.services.process import Process

RECORDS_PER_SECOND = 1000
WARM_UP_SHARE = 0.6
"""Share of the time: until the JVM has compiled the hot code, batches take several times as long."""
TOPIC = "receipts"
GOALS = {50: 2.5, 99: 5.0}


def receipt_figures(bench: Bench, seconds: int) -> list[Figure]:
    """Send at a steady rate, and watch the group's offsets."""
    bench, folder = replace(bench, topic=TOPIC), bench.folder / TOPIC
    bench.broker.create_topics(TOPIC, partitions=bench.partitions)
    servers = bench.broker.bootstrap_servers
    first = topic.send(servers, TOPIC, topic.records(10, time.time_ns() // 1_000_000, seed=1))
    bench.job(folder, 0, records=first)
    bench.spark_log("age", STATE_AGE_SECONDS, folder / "events")
    process = bench.start_job(folder, "--trigger", "2s")
    with ending(process):
        process.wait_for_log("stage=started", RUN_SECONDS_MAX)
        ages = _watch(bench, process, seconds)
    cuts = quantiles(ages, n=100)
    of = f"receipt age at {RECORDS_PER_SECOND:,} records/s, trigger 2 s"
    return [against(f"{of}, p{cut}", cuts[cut - 1], "s", goal, records=len(ages)) for cut, goal in GOALS.items()]


def _watch(bench: Bench, process: Process, seconds: int) -> list[float]:
    """Return the age of each record's receipt, without those of the warm-up."""
    appended: dict[tuple[int, int], float] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            place = message.partition() or 0, message.offset() or 0
            appended[place] = message.timestamp()[1] / 1000  # the broker's clock is this machine's

    producer = Producer({"bootstrap.servers": bench.broker.bootstrap_servers, "linger.ms": 5})
    reader = Consumer({"bootstrap.servers": bench.broker.bootstrap_servers, "group.id": bench.group})
    places = [TopicPartition(TOPIC, partition) for partition in range(bench.partitions)]
    reached = {one.partition: max(0, one.offset) for one in committed(reader, places)}
    first = sum(reached.values())
    ages: list[float] = []
    total, sent, started = RECORDS_PER_SECOND * seconds, 0, time.time()
    records = topic.records(total, time.time_ns() // 1_000_000)
    deadline = started + seconds + 120
    while (sent < total or sum(reached.values()) < first + total) and time.time() < deadline and process.alive:
        due = min(total, int((time.time() - started) * RECORDS_PER_SECOND))
        while sent < due:
            one = next(records)
            producer.produce(TOPIC, one.value, one.key, headers=list(one.headers), on_delivery=delivered)
            sent += 1
        producer.poll(0.01)
        now = time.time()
        for one in committed(reader, places):
            for offset in range(reached[one.partition], max(reached[one.partition], one.offset)):
                moment = appended.pop((one.partition, offset), None)
                if moment is not None and moment > started + seconds * WARM_UP_SHARE:
                    ages.append(now - moment)
            reached[one.partition] = max(reached[one.partition], one.offset)
    producer.flush(30)
    reader.close()
    if (receipted := sum(reached.values()) - first) < total:  # the oldest ones would be missing from the ages
        raise ServiceError(f"receipts: {receipted:,} of {total:,} records have theirs")
    return ages
