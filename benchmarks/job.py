"""The job alone: `python -m benchmarks.job [--quick] [--only a b]`.

How its batches slow down with the keys in its state, with late traffic, with the length of its table's log, how old its
receipts are at a steady rate, and what an audit takes.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import mean, median, quantiles

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.runs import (
    CORES,
    DRIVER_MEGABYTES,
    FAILURES,
    RUN_SECONDS_MAX,
    STATE_AGE_SECONDS,
    WINDOW,
    Bench,
    committed,
    ending,
)
from benchmarks.cloud.spark import RETAINED_VERSIONS, SMALL_KEYS
from benchmarks.report import Figure, against
from contract.record import SharedDay
from simulators.certify.records import Record
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker
from simulators.services.process import Process

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a run."""

    batch: int
    late_rows: int
    late_records: int
    receipt_seconds: int
    window_keys: int
    log_versions: int
    audit_records: int


FULL = Size(400_400, 10_000_000, 800_000, 150, 5_000_000, 43_200, 1_000_000)
QUICK = Size(50_000, 500_000, 20_000, 25, 500_000, 10_800, 20_000)

RECORDS_PER_SECOND = 1000
WARM_UP_SHARE = 0.6
"""Share of the time: until the JVM has compiled the hot code, batches take several times as long."""
AGE_GOALS = {50: 2.5, 99: 5.0}


def _receipts(bench: Bench, size: Size) -> list[Figure]:
    """Return the age of a receipt: from a record's append in Kafka to the committed offset that covers it."""
    folder, given = bench.folder / bench.topic, topic.records(10, time.time_ns() // 1_000_000, seed=1)
    first = topic.send(bench.broker.bootstrap_servers, bench.topic, given)
    bench.job(folder, 0, records=first)
    bench.spark_log("age", STATE_AGE_SECONDS, folder / "events")
    process = bench.start_job(folder, "--trigger", "2s")
    with ending(process):
        process.wait_for_log("stage=started", RUN_SECONDS_MAX)
        ages = _watch(bench, process, size.receipt_seconds)
    cuts = quantiles(ages, n=100)
    of = f"receipt age at {RECORDS_PER_SECOND:,} records/s, trigger 2 s"
    return [against(f"{of}, p{cut}", cuts[cut - 1], "s", goal, records=len(ages)) for cut, goal in AGE_GOALS.items()]


def _watch(bench: Bench, process: Process, seconds: int) -> list[float]:
    """Send at a steady rate, watch the group's offsets, and return the ages but those of the warm-up."""
    appended: dict[tuple[int, int], float] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            place = message.partition() or 0, message.offset() or 0
            appended[place] = message.timestamp()[1] / 1000  # the broker's clock is this machine's

    producer = Producer({"bootstrap.servers": bench.broker.bootstrap_servers, "linger.ms": 5})
    reader = Consumer({"bootstrap.servers": bench.broker.bootstrap_servers, "group.id": bench.group})
    places = [TopicPartition(bench.topic, partition) for partition in range(bench.partitions)]
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
            producer.produce(bench.topic, one.value, one.key, headers=list(one.headers), on_delivery=delivered)
            sent += 1
        producer.poll(0.01)
        now = time.time()
        for place in committed(reader, places):
            end = max(reached[place.partition], place.offset)
            for offset in range(reached[place.partition], end):
                moment = appended.pop((place.partition, offset), None)
                if moment is not None and moment > started + seconds * WARM_UP_SHARE:
                    ages.append(now - moment)
            reached[place.partition] = end
    producer.flush(30)
    reader.close()
    if (receipted := sum(reached.values()) - first) < total:  # the oldest ones would be missing from the ages
        raise ServiceError(f"receipts: {receipted:,} of {total:,} records have theirs")
    return ages


DAY_MS = 86_400_000
LATE_GOALS = {SharedDay.TIME: ("within one day", 15_000), SharedDay.NONE: ("over all days", 10_000)}
LATE_GOAL_ROWS = 10_000_000
SMALL_ROWS, SMALL_BATCHES, SMALL_TURNS = 2_000, 10, 3
LATE_SHARE = 0.01
_DONE = re.compile(r"batch=(\d+) stage=done .* seconds=([\d.]+) ")
_LOOKED_UP = re.compile(r"batch=(\d+) stage=look-up rows=[1-9]")


def _late(bench: Bench, size: Size) -> list[Figure]:
    """Fill a table with years of data, then run the job on late records: those of one known day, and of any day."""
    rows, records = size.late_rows, size.late_records
    servers, folder = bench.broker.bootstrap_servers, bench.folder / bench.topic
    yesterday = time.time_ns() // 1_000_000 - DAY_MS
    sent = topic.send(servers, bench.topic, topic.records(10, yesterday, seed=1))
    bench.job(folder, 0, records=sent)  # creates the table and finishes its first batch
    bench.spark_log("fill", rows, folder / "events")
    figures = []
    for shared, (where, goal) in LATE_GOALS.items():
        topic.send(servers, bench.topic, topic.records(records, yesterday, shared=shared))
        timing = bench.job(folder, sent, records=records)
        sent += records
        name = f"late traffic into {rows:,} rows, looked up {where}"
        details = {"cpu_seconds": timing.cpu_seconds, "records": records}
        only_full = goal if rows >= LATE_GOAL_ROWS else None
        figures.append(against(name, timing.rate, "records/s", only_full, at_least=True, **details))
    return [*figures, *_small_batches(bench, rows, sent)]


def _small_batches(bench: Bench, rows: int, receipted_before: int) -> list[Figure]:
    """Compare small batches of fresh records with those of which a share is late, in turns, on the same table."""
    folder = bench.folder / bench.topic
    bench.spark_log("age", STATE_AGE_SECONDS, folder / "events")
    process = bench.start_job(folder, "--max-offsets-per-trigger", str(SMALL_ROWS))
    receipted = receipted_before
    with ending(process):
        process.wait_for_log("stage=started", RUN_SECONDS_MAX)
        for turn in range(2 * (SMALL_TURNS + 1)):  # the first two warm up
            share = LATE_SHARE if turn % 2 else 0.0
            given = _mixed(SMALL_ROWS * SMALL_BATCHES, share)
            receipted += topic.send(bench.broker.bootstrap_servers, bench.topic, given)
            bench.wait_for(process, bench.group, receipted)
        log = process.log()
    looked_up = set(_LOOKED_UP.findall(log))
    batches = _DONE.findall(log)[2 * SMALL_BATCHES :]  # without the warm-up
    fresh = [float(seconds) for number, seconds in batches if number not in looked_up]
    late = [float(seconds) for number, seconds in batches if number in looked_up]
    of = f"batch of {SMALL_ROWS:,} records into {rows:,} rows"
    return [
        Figure(f"{of}, all fresh", mean(fresh), "s", details={"batches": len(fresh)}),
        Figure(f"{of}, {LATE_SHARE:.0%} late", mean(late), "s", details={"batches": len(late)}),
    ]


def _mixed(count: int, late_share: float) -> Iterator[Record]:
    """Yield records of now, and this share of yesterday's, in random order."""
    chance, now = random.Random(count), time.time_ns() // 1_000_000
    late = int(count * late_share)
    fresh, old = topic.records(count - late, now), topic.records(late, now - DAY_MS)
    order = [True] * late + [False] * (count - late)
    chance.shuffle(order)
    for is_late in order:
        yield next(old if is_late else fresh)


GOAL_BYTES = 60
_BATCH = re.compile(r"^batch=\d+ rows=(\d+) milliseconds=(\d+) disk=(\d+)$", re.MULTILINE)


def _window(bench: Bench, size: Size) -> list[Figure]:
    """Grow a state to a number of keys on one core, and on CORES: seconds by keys, and the state's bytes for each.

    Spark keeps each key for two windows, and scans every key in every batch.
    """
    figures = []
    for cores in range(1, CORES + 1):
        curve, known, disk_bytes = _read_batches(bench.spark_log("state", size.window_keys, cores=cores))
        least, most = min(curve), max(curve)
        by_million = (curve[most] - curve[least]) * cores * 1_000_000 / (most - least)
        on = f"{cores} core{'s' if cores > 1 else ''}"
        details = {"seconds_by_keys": {str(before): seconds for before, seconds in curve.items()}}
        name = f"window, {on}: batch of {SMALL_KEYS:,} keys beside {most:,}"
        figures.append(Figure(name, curve[most], "s", details=details))
        figures.append(Figure(f"window, {on}: each million keys in the state", by_million, "core seconds/batch"))
    return [*figures, against(f"state, disk, {known:,} keys", disk_bytes / known, "bytes/key", GOAL_BYTES)]


def _read_batches(log: str) -> tuple[dict[int, float], int, int]:
    """Return the median seconds of small batches by the keys before them; at the end the keys, and their bytes."""
    runs: dict[int, list[float]] = defaultdict(list)
    keys = before = disk_bytes = 0
    for number, found in enumerate(_BATCH.finditer(log)):
        rows, milliseconds, disk_bytes = map(int, found.groups())
        keys += rows  # no key occurs twice
        if rows != SMALL_KEYS:
            before = keys
        elif number:  # the first batch warms up
            runs[before].append(milliseconds / 1000)
    return {before: median(seconds) for before, seconds in runs.items()}, keys, disk_bytes


GOAL_RATIO = 1.3
"""Ratio of a commit on a log of the retention's length to one on a fresh log."""
_COMMIT = re.compile(r"^log round=(\d+) versions=(\d+) seconds=([\d.]+)$", re.MULTILINE)


def _log(bench: Bench, size: Size) -> list[Figure]:
    """Time empty commits on logs with up to this number of versions.

    Each ratio is the median over the rounds: within a round all tables run under the same load.
    """
    rounds: dict[int, dict[int, float]] = defaultdict(dict)
    for number, count, seconds in _COMMIT.findall(bench.spark_log("log", size.log_versions)):
        rounds[int(number)][int(count)] = float(seconds)
    counts = sorted(next(iter(rounds.values())))
    return [
        Figure(f"empty commit, fresh log, median of {len(rounds)}", median(one[0] for one in rounds.values()), "s"),
        *(_ratio(count, [one[count] / one[0] for one in rounds.values()]) for count in counts[1:]),
    ]


def _ratio(count: int, ratios: list[float]) -> Figure:
    name = f"empty commit, the names of {count / 1800:.1f} hours at a trigger of 2 s in the log, by a fresh log"
    goal = GOAL_RATIO if count == RETAINED_VERSIONS else None
    return against(name, median(ratios), "x", goal, versions=count, least=min(ratios), most=max(ratios))


AUDIT_TURNS = 3
VERIFY_SHARES = (0.0, 1.0)


def _audit(bench: Bench, size: Size) -> list[Figure]:
    """Have the job write a topic, and audit all of it from the beginning on, without and with `--verify 1` in turns."""
    folder, given = bench.folder / bench.topic, topic.records(size.audit_records, time.time_ns() // 1_000_000)
    sent = topic.send(bench.broker.bootstrap_servers, bench.topic, given)
    bench.job(folder, 0, records=sent)
    seconds: dict[float, list[float]] = {share: [] for share in VERIFY_SHARES}
    for turn in range(AUDIT_TURNS):
        for share in VERIFY_SHARES if turn % 2 == 0 else reversed(VERIFY_SHARES):
            seconds[share].append(bench.audit(folder, share))
    each = (median(seconds[1.0]) - median(seconds[0.0])) / sent * 1e6
    return [
        *(
            Figure(f"audit of {sent:,} records, --verify {share:g}", median(found), "s", details={"each": found})
            for share, found in seconds.items()
        ),
        Figure("what --verify adds to a record", each, "µs"),
    ]


MEASURES: dict[str, Callable[[Bench, Size], list[Figure]]] = {
    "receipts": _receipts,
    "late": _late,
    "window": _window,
    "log": _log,
    "audit": _audit,
}


def main() -> int:
    """Run the chosen measurements, print the table, write the JSON; exit status 1 where one of them failed."""
    started = time.monotonic()
    given = report.parser("job", __doc__, MEASURES).parse_args()
    size = QUICK if given.quick else FULL
    figures: list[Figure] = []
    failed: list[str] = []
    with report.folder() as folder, Broker(folder / "kafka") as broker:
        for name in given.only:
            began = time.monotonic()
            try:
                broker.create_topics(name, partitions=PARTITIONS)
                figures += MEASURES[name](Bench(broker, name, PARTITIONS, 0, size.batch, folder), size)
            except FAILURES as error:
                failed.append(name)
                report.progress(f"{name}: not measured: {error}")
            report.progress(f"{name}: {time.monotonic() - began:.0f} s")
    took = (time.monotonic() - started) / 60
    print(f"all of it took {took:.1f} minutes", flush=True)
    settings = {"partitions": PARTITIONS, "window": WINDOW, "driver_megabytes": DRIVER_MEGABYTES, "minutes": took}
    is_kept = not given.quick and set(given.only) == set(MEASURES)
    report.conclude("job", figures, is_kept=is_kept, **asdict(size), **settings, failed=failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
