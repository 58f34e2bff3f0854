"""The job beside alternatives: `python -m benchmarks.cloud [--quick] [--rounds N] [--only a b]`.

One broker and one topic of records of 200 bytes with 10 % duplicates, written in advance. The contenders read it one
after the other, each in a fresh process on the same cores; all are timed by one clock.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.runs import DRIVER_MEGABYTES, STATE_AGE_SECONDS, WINDOW, Bench, Timing
from benchmarks.report import Figure
from benchmarks.rounds import Contender, Rounds
from simulators.services.kafka.broker import Broker

PARTITIONS = 4
RECORDS, RECORDS_QUICK = 300_000, 60_000
BATCHES = 5
ROUNDS = 3
JOB, COPY = "the whole job to Delta, fresh traffic", "Spark, the job's rows without dedup, to Delta"
STREAMS, STREAMS_TABLE = (f"Kafka Streams, exactly-once v2, {end}" for end in ("to a topic", "and its topic to Delta"))
ROWS: Mapping[str, Callable[[Bench], Iterable[tuple[str, Timing]]]] = {
    "copy": lambda bench: [(COPY, bench.copy())],
    "streams": lambda bench: zip((STREAMS, STREAMS_TABLE), bench.streams_to_table(), strict=True),
    "consumer": lambda bench: [("plain consumer to PostgreSQL, one process", bench.to_postgres("consumer"))],
    "go": lambda bench: [("the example in Go, to PostgreSQL", bench.to_postgres("go"))],
    "java": lambda bench: [("the example in Java, to PostgreSQL", bench.to_postgres("java"))],
}
"""The contenders beside the job."""
GOALS = {COPY: 0.92, STREAMS_TABLE: 1.4}
"""Goals for the job's rate, as multiples of other contenders'."""


def main() -> int:
    """Run the contest; exit status 1 where a contender failed."""
    given = report.parse(report.parser("cloud", __doc__, ("job", *ROWS), ROUNDS))
    records = RECORDS_QUICK if given.quick else RECORDS
    rounds = Rounds[Timing]()
    with report.folder() as folder, Broker(folder / "kafka") as broker:
        # A little more than a fifth: Spark rounds down, and would measure a sixth batch of six records.
        bench = Bench(broker, "events", PARTITIONS, records, records // BATCHES + 400, folder)
        first = _prepare(bench, folder / "born")
        contenders: dict[str, Contender[Timing]] = {"job": partial(_job, bench, folder / "born", first)}
        contenders |= {name: partial(run, bench) for name, run in ROWS.items()}
        rounds.run({name: contenders[name] for name in given.only}, given.rounds)
    settings = {
        "records": records,
        "value_bytes": topic.VALUE_BYTES,
        "window": WINDOW,
        "partitions": PARTITIONS,
        "driver_megabytes": DRIVER_MEGABYTES,
        "rounds": given.rounds,
    }
    return report.conclude("cloud", [*_figures(rounds)], given, rounds.failed, **settings)


def _prepare(bench: Bench, born: Path) -> int:
    """Create the job's state, and write the topic; return the number of records that the state has read."""
    servers = bench.broker.bootstrap_servers
    bench.broker.create_topics(bench.topic, partitions=bench.partitions)
    first = topic.send(servers, bench.topic, topic.records(10, time.time_ns() // 1_000_000, seed=1))
    bench.job(born, 0, records=first)
    bench.spark_log("age", STATE_AGE_SECONDS, born / "events")
    sent = topic.send(servers, bench.topic, topic.records(bench.records, time.time_ns() // 1_000_000))
    report.progress(f"topic: {sent:,} records")
    return first


def _job(bench: Bench, born: Path, first: int) -> Iterator[tuple[str, Timing]]:
    folder = bench.folder / "job"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(born, folder)
    yield JOB, bench.job(folder, first, must_be_fresh=True)


def _figures(rounds: Rounds[Timing]) -> Iterator[Figure]:
    """Yield the medians of all contenders, and the job's multiples of the others in the same rounds."""
    for row, found in rounds.rows.items():
        timings = found.values()
        cpu_seconds = [one.cpu_seconds for one in timings]
        broker_cpu_seconds = [one.broker_cpu_seconds for one in timings]
        costs = {"each_cpu_seconds": cpu_seconds, "each_broker_cpu_seconds": broker_cpu_seconds}
        yield report.middle(row, [one.rate for one in timings], "records/s", None, at_least=True, costs=costs)
        yield report.middle(f"{row}, by CPU second", [one.rate_per_cpu for one in timings], "records/s")
    for row in rounds.rows:
        if row != JOB:
            of = f"the job by: {row}"
            yield from rounds.compared(f"{of}, wall", JOB, row, lambda one: one.rate, GOALS.get(row), at_least=True)
            yield from rounds.compared(f"{of}, per CPU second", JOB, row, lambda one: one.rate_per_cpu)


if __name__ == "__main__":
    sys.exit(main())
