"""The cloud's side against what a user would pick instead: `python -m benchmarks.cloud [--records N] [--only a,b]`.

One broker, one topic of records of 200 bytes with 10 % duplicates, written before anybody starts; each contender alone,
one after the other, in a fresh process on the same cores, timed from its first record to its last.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks import cloud_topic, report
from benchmarks.cloud_bloom import bloom_figures
from benchmarks.cloud_late import late_figures
from benchmarks.cloud_receipts import receipt_figures
from benchmarks.cloud_runs import WINDOW, Bench, Timing
from benchmarks.report import Figure
from simulators.parts.kafka import Broker
from simulators.parts.postgres import Postgres

PARTITIONS = 4
SKEW_MS = 3_600_000
"""A quarter of the window: so far ahead are the events' times, so that all of them are fresh to a state this young."""
ALL = ("copy", "raw", "job", "dedup", "merge", "streams", "consumer", "bloom", "late", "receipts")
NAMES = {
    "copy": "Spark, the job's rows without dedup, to Delta",
    "raw": "Spark, Kafka's columns as they are, to Delta",
    "job": "the whole job to Delta, fresh traffic",
    "dedup": "Spark, dropDuplicatesWithinWatermark alone, to Parquet",
    "merge": "Spark, MERGE of everything, to Delta",
    "streams": "Kafka Streams, exactly-once v2, to a topic",
    "consumer": "plain consumer to PostgreSQL, one process",
}


def main() -> None:
    """Run what was asked for, print the table, keep the JSON."""
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="oncegate-bench-"))
    only = given.only.split(",")
    try:
        with Broker(folder / "kafka") as broker:
            bench = Bench(broker, "events", PARTITIONS, given.records, given.batch, folder)
            timings = _throughput(bench, only, given.repeat)
            figures = _figures(timings)
            if "bloom" in only and timings:
                figures += bloom_figures(bench)
            if "late" in only:
                figures += late_figures(bench, given.late_rows, given.late_records)
            if "receipts" in only:
                figures += receipt_figures(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {"records": given.records, "batch": given.batch, "window": WINDOW, "late_rows": given.late_rows}
    report.keep("cloud", figures, partitions=PARTITIONS, value_bytes=cloud_topic.VALUE_BYTES, **settings)


def _throughput(bench: Bench, only: list[str], repeat: int) -> dict[str, list[Timing]]:
    """Give the job's state its birth, write the topic, and let each contender read it, in turns."""
    wanted = [name for name in NAMES if name in only]
    timings: dict[str, list[Timing]] = {name: [] for name in wanted}
    if not wanted:
        return timings
    bench.broker.create_topics(bench.topic, partitions=bench.partitions)
    born = bench.folder / "born"
    now = time.time_ns() // 1_000_000
    first = cloud_topic.send(bench.broker.bootstrap_servers, bench.topic, cloud_topic.records(10, now, seed=1))
    if "job" in wanted:
        bench.job(born, 0, records=first)
    now = time.time_ns() // 1_000_000
    sent = cloud_topic.send(
        bench.broker.bootstrap_servers, bench.topic, cloud_topic.records(bench.records, now + SKEW_MS)
    )
    print(f"topic: {sent:,} records in {(time.time_ns() // 1_000_000 - now) / 1000:.0f} s", flush=True)
    for turn in range(repeat):
        for name in wanted:
            if (timing := _run(bench, name, born, first)) is not None:
                timings[name].append(timing)
                print(
                    f"turn {turn + 1}: {NAMES[name]}: {timing.rate:,.0f}/s, {timing.cpu_seconds:.1f} s CPU", flush=True
                )
    return timings


def _run(bench: Bench, name: str, born: Path, first: int) -> Timing | None:
    if name == "job":
        folder = bench.folder / "job"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(born, folder)
        return bench.job(folder, first)
    if name == "streams":
        return bench.streams()
    if name == "consumer":
        with Postgres(bench.folder / "postgres") as server:
            return bench.consumer(server)
    return bench.spark(name)


def _figures(timings: dict[str, list[Timing]]) -> list[Figure]:
    best = {name: max(found, key=lambda timing: timing.rate) for name, found in timings.items() if found}
    figures = [
        Figure(
            NAMES[name],
            timing.rate,
            "records/s",
            details={
                "records_per_cpu_second": timing.records / timing.cpu_seconds if timing.cpu_seconds else 0,
                "cpu_seconds": timing.cpu_seconds,
                "all_rates": [one.rate for one in timings[name]],
            },
        )
        for name, timing in best.items()
    ]
    for other, goal in (("copy", 0.75), ("raw", 0.75), ("streams", 1.2)):
        if "job" in best and other in best:
            ratio = best["job"].rate / best[other].rate
            per_cpu = ratio_per_cpu(best["job"], best[other])
            name = f"the job by: {NAMES[other]}"
            # Which of the two copies is the plain one is a matter of reading: the goal is held against the same rows.
            limit = "" if other == "raw" else f">= {goal}"
            figures.append(Figure(f"{name}, wall", ratio, "x", limit, ratio >= goal if limit else None))
            figures.append(Figure(f"{name}, per CPU second", per_cpu, "x", limit, per_cpu >= goal if limit else None))
    return figures


def ratio_per_cpu(one: Timing, other: Timing) -> float:
    """Compare records by CPU second."""
    return (one.records / one.cpu_seconds) / (other.records / other.cpu_seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloud", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--records", type=int, default=400_000, help="in the topic (%(default)s); a full run takes 2000000")
    add("--batch", type=int, default=200_000, help="records by batch (%(default)s)")
    add("--repeat", type=int, default=1, help="turns of all contenders; the best counts (%(default)s)")
    add("--late-rows", type=int, default=1_000_000, help="rows in the table of the late traffic (%(default)s)")
    add("--late-records", type=int, default=100_000, help="late records (%(default)s)")
    add("--only", default=",".join(ALL), metavar="NAMES", help="of: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    main()
