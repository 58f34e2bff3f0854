"""How old a receipt is: from a record's append in Kafka to the offset that covers it."""

from __future__ import annotations

import re
import time
from statistics import quantiles
from urllib.request import urlopen

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks import cloud_topic
from benchmarks.cloud_runs import RUN_SECONDS_MAX, Bench, committed
from benchmarks.report import Figure
from simulators.parts import ports
from simulators.parts.process import Process

RECORDS_PER_SECOND = 1000
SECONDS = 40
WARM_UP_SECONDS = 10
TOPIC = "receipts"
GOALS = {50: 3.0, 99: 6.0}


def receipt_figures(bench: Bench) -> list[Figure]:
    """Send at a steady pace, watch the group's offsets, and read the state's size at the end."""
    bench.broker.create_topics(TOPIC, partitions=bench.partitions)
    [port] = ports.free(1)
    folder = bench.folder / TOPIC
    process = bench.start_job(folder, "--trigger", "2s", "--metrics", f"127.0.0.1:{port}", topic=TOPIC)
    try:
        process.wait_for_log("cloud.progress query=", RUN_SECONDS_MAX)
        ages = _watch(bench, process)
        state = _state(port)
    finally:
        process.kill()
    cuts = quantiles(ages, n=100)
    figures = [
        Figure(
            f"receipt age at {RECORDS_PER_SECOND:,} records/s, trigger 2 s, p{cut}",
            cuts[cut - 1],
            "s",
            f"<= {goal:g}",
            cuts[cut - 1] <= goal,
            {"records": len(ages)},
        )
        for cut, goal in GOALS.items()
    ]
    keys = max(1.0, state["oncegate_cloud_state_rows"])
    for where in ("memory", "disk"):
        size = state[f"oncegate_cloud_state_{where}_bytes"]
        figures.append(Figure(f"state, {where}, {keys:,.0f} keys", size / keys, "bytes/key"))
    return figures


def _watch(bench: Bench, process: Process) -> list[float]:
    """Give the age of each record's receipt, those of the warm-up left out."""
    appended: dict[tuple[int, int], float] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            place = message.partition() or 0, message.offset() or 0
            appended[place] = message.timestamp()[1] / 1000  # the broker's own clock, which is ours

    producer = Producer({"bootstrap.servers": bench.broker.bootstrap_servers, "linger.ms": 5})
    reader = Consumer({"bootstrap.servers": bench.broker.bootstrap_servers, "group.id": f"{TOPIC}-cloud"})
    places = [TopicPartition(TOPIC, partition) for partition in range(bench.partitions)]
    reached = dict.fromkeys(range(bench.partitions), 0)
    ages: list[float] = []
    total, sent, started = RECORDS_PER_SECOND * SECONDS, 0, time.time()
    told = cloud_topic.records(total, time.time_ns() // 1_000_000)
    deadline = started + SECONDS + 120
    while (sent < total or sum(reached.values()) < total) and time.time() < deadline and process.alive:
        due = min(total, int((time.time() - started) * RECORDS_PER_SECOND))
        while sent < due:
            key, value, headers = next(told)
            producer.produce(TOPIC, value, key, headers=list(headers), on_delivery=delivered)
            sent += 1
        producer.poll(0.01)
        now = time.time()
        for one in committed(reader, places):
            for offset in range(reached[one.partition], max(reached[one.partition], one.offset)):
                moment = appended.pop((one.partition, offset), None)
                if moment is not None and moment > started + WARM_UP_SECONDS:
                    ages.append(now - moment)
            reached[one.partition] = max(reached[one.partition], one.offset)
    producer.flush(30)
    reader.close()
    return ages


def _state(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = re.findall(r"^(oncegate_cloud_state_\w+) (\S+)$", answer.read().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}
