"""The job alone: `python -m benchmarks.job [--quick] [--only a b]`.

How old its receipts are, how fast it is with late traffic, and what signed records cost it and the audit.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from statistics import quantiles

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.runs import (
    DRIVER_MEGABYTES,
    RUN_SECONDS_MAX,
    STATE_AGE_SECONDS,
    WINDOW,
    Bench,
    committed,
    ending,
)
from benchmarks.report import Figure, against
from benchmarks.rounds import Rounds
from contract.mac import Signer, create_key, read_key
from contract.record import SharedDay
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
    signed: int
    signed_jobs: int
    """Rounds; their rates vary by a sixth."""
    signed_audits: int


FULL = Size(400_400, 10_000_000, 800_000, 150, 400_000, 8, 3)
QUICK = Size(50_000, 500_000, 20_000, 25, 20_000, 1, 1)

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
    return figures


SIGNED_GOAL = 0.95


def _signed(bench: Bench, size: Size) -> list[Figure]:
    """Run job and audit on a topic of signed records without and with the gateways' keys, in turns."""
    born, folder, key = bench.folder / "born", bench.folder / bench.topic, create_key()
    keys = bench.folder / "gateways"
    keys.touch(0o600)
    keys.write_text("".join(f"{name},{key}\n" for name in topic.GATEWAYS))
    sign, given = Signer(read_key(key), bench.topic), ("--gateways", str(keys))
    now, servers = time.time_ns() // 1_000_000, bench.broker.bootstrap_servers
    first = topic.send(servers, bench.topic, topic.records(10, now, seed=1, sign=sign))
    bench.job(born, 0, records=first)
    bench.spark_log("age", STATE_AGE_SECONDS, born / "events")
    sent = topic.send(servers, bench.topic, topic.records(size.signed, time.time_ns() // 1_000_000, sign=sign))

    def job(name: str, *options: str) -> Iterator[tuple[str, float]]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(born, folder)
        yield name, bench.job(folder, first, *options, records=sent, must_be_fresh=True).rate

    def audit(name: str, *options: str) -> Iterator[tuple[str, float]]:
        yield name, bench.audit(folder, *options)

    jobs, audits = Rounds[float](), Rounds[float]()
    of_job = {"job": (), "job, --gateways": given}
    of_audit = {"audit": (), "audit, --gateways": given, "audit, --verify 1": ("--verify", "1")}
    jobs.run({name: partial(job, name, *options) for name, options in of_job.items()}, size.signed_jobs)
    audits.run({name: partial(audit, name, *options) for name, options in of_audit.items()}, size.signed_audits)
    if jobs.failed or audits.failed:
        raise ServiceError(f"signed: {', '.join((*jobs.failed, *audits.failed))} not measured")
    figures = [
        *(report.middle(name, [*found.values()], "records/s") for name, found in jobs.rows.items()),
        *(report.middle(name, [*found.values()], "s", records=sent) for name, found in audits.rows.items()),
        *jobs.compared("job, --gateways, by that without", "job, --gateways", "job", float, SIGNED_GOAL, at_least=True),
    ]
    for name in [*of_audit][1:]:
        figures += audits.compared(f"{name}, by that without", name, "audit", float)
    return figures


MEASURES: dict[str, Callable[[Bench, Size], list[Figure]]] = {
    "receipts": _receipts,
    "late": _late,
    "signed": _signed,
}


def main() -> int:
    """Run the chosen measurements; exit status 1 where one of them failed."""
    given = report.parse(report.parser("job", __doc__, MEASURES))
    size = QUICK if given.quick else FULL
    rounds = Rounds[Figure]()
    with report.folder() as folder, Broker(folder / "kafka") as broker:

        def measured(name: str) -> Iterator[tuple[str, Figure]]:
            broker.create_topics(name, partitions=PARTITIONS)
            bench = Bench(broker, name, PARTITIONS, 0, size.batch, folder)
            return ((figure.name, figure) for figure in MEASURES[name](bench, size))

        rounds.run({name: partial(measured, name) for name in given.only}, 1)
    figures = [figure for found in rounds.rows.values() for figure in found.values()]
    settings = {"partitions": PARTITIONS, "window": WINDOW, "driver_megabytes": DRIVER_MEGABYTES}
    return report.conclude("job", figures, given, rounds.failed, **asdict(size), **settings)


if __name__ == "__main__":
    sys.exit(main())
