"""The cloud side, beside alternatives: `python -m benchmarks.cloud [--quick] [--only a,b]`.

One broker and one topic of records of 200 bytes with 10 % duplicates, written in advance. The contenders run one after
the other, each in a fresh process on the same cores, and are timed from the first record to the last.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.bloom import bloom_figures
from benchmarks.cloud.delta_log import log_figures
from benchmarks.cloud.late import late_figures
from benchmarks.cloud.receipts import receipt_figures
from benchmarks.cloud.runs import DRIVER_MEGABYTES, STATE_AGE_SECONDS, WINDOW, Bench, Timing
from benchmarks.cloud.state import state_figures
from benchmarks.cloud.window import window_figures
from benchmarks.report import Figure
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker

T = TypeVar("T")

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a run."""

    records: int
    batch: int
    turns: int
    late_rows: int
    late_records: int
    receipt_seconds: int
    state_keys: int
    window_keys: int
    log_versions: int


# A little more than a fifth: Spark rounds down, and would measure a sixth batch of six records.
FULL = Size(2_000_000, 400_400, 2, 10_000_000, 800_000, 225, 10_000_000, 5_000_000, 43_200)
QUICK = Size(100_000, 50_000, 1, 500_000, 20_000, 25, 500_000, 500_000, 10_800)
NAMES = {
    "copy": "Spark, the job's rows without dedup, to Delta",
    "raw": "Spark, Kafka's columns as they are, to Delta",
    "job": "the whole job to Delta, fresh traffic",
    "dedup": "Spark, dropDuplicatesWithinWatermark alone, to Parquet",
    "merge": "Spark, MERGE of everything, to Delta",
    "streams": "Kafka Streams, exactly-once v2, to a topic",
    "streams-table": "Kafka Streams, exactly-once v2, and its topic to Delta",
    "consumer": "plain consumer to PostgreSQL, one process",
}
MORE = ("bloom", "late", "receipts", "state", "window", "log")
ALL = (*NAMES, *MORE)


def main() -> int:
    """Run the chosen measurements, print the tables, write the JSON; exit status 1 where one of them failed."""
    started = time.monotonic()
    given = _arguments()
    size = QUICK if given.quick else FULL
    folder = Path(tempfile.mkdtemp(prefix="oncegate-bench-"))
    only = given.only.split(",")
    try:
        with Broker(folder / "kafka") as broker:
            bench = Bench(broker, "events", PARTITIONS, given.records or size.records, size.batch, folder)
            trial = Trial()
            figures = _all_figures(bench, size, only, started + given.minutes * 60, trial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    settings = {**asdict(size), "records": bench.records, "window": WINDOW, "value_bytes": topic.VALUE_BYTES}
    name = "cloud-quick" if given.quick else "cloud"
    _report(f"all of it took {(time.monotonic() - started) / 60:.1f} minutes")
    keep = report.keep if set(only) == set(ALL) else report.merge
    keep(name, figures, partitions=PARTITIONS, driver_megabytes=DRIVER_MEGABYTES, **settings)
    return 1 if trial.failed else 0


class Trial:
    """Measurements in sequence, of which a failed one loses only its own figures."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def of(self, name: str, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of the work, or the default where it fails."""
        try:
            return work()
        except (ServiceError, KafkaException, OSError, subprocess.CalledProcessError, ValueError) as error:
            self.failed.append(name)
            _report(f"{name}: not measured: {error}")
            return otherwise


def _all_figures(bench: Bench, size: Size, only: list[str], deadline: float, trial: Trial) -> list[Figure]:
    """Run each contender once, take the other measurements, and repeat the contenders while time is left."""
    contest = Contest(bench, [name for name in NAMES if name in only], trial)
    others: list[Figure] = []
    measures: dict[str, Callable[[], list[Figure]]] = {
        "late": lambda: late_figures(bench, size.late_rows, size.late_records),
        "receipts": lambda: receipt_figures(bench, size.receipt_seconds),
        "state": lambda: state_figures(bench, size.state_keys),
        "window": lambda: window_figures(bench, size.window_keys),
        "log": lambda: log_figures(bench, size.log_versions),
    }
    if contest.names:
        contest.prepare()
        contest.turn()
        measures = {"bloom": lambda: bloom_figures(bench), **measures}
    for name, measure in measures.items():
        if name in only:
            others += trial.of(name, measure, [])
    for figure in others:
        _report(f"{figure.name}: {figure.value:,.4g} {figure.unit}")
    for _ in range(size.turns - 1):
        contest.turn(deadline)
    return _figures(contest.timings) + others


class Contest:
    """One topic, and the contenders that read it in turns."""

    def __init__(self, bench: Bench, names: list[str], trial: Trial) -> None:
        self.names = names
        self._trial = trial
        self.timings: dict[str, list[Timing]] = {name: [] for name in names}
        self._bench = bench
        self._born = bench.folder / "born"
        self._first = 0
        self._took: dict[str, float] = {}

    def prepare(self) -> None:
        """Create the job's state, and write the topic."""
        bench, now = self._bench, time.time_ns() // 1_000_000
        servers = bench.broker.bootstrap_servers
        bench.broker.create_topics(bench.topic, partitions=bench.partitions)
        self._first = topic.send(servers, bench.topic, topic.records(10, now, seed=1))
        if "job" in self.names:
            bench.job(self._born, 0, records=self._first)
            bench.spark("age", batch=STATE_AGE_SECONDS, table=self._born / "events")
        now = time.time_ns() // 1_000_000
        sent = topic.send(servers, bench.topic, topic.records(bench.records, now))
        _report(f"topic: {sent:,} records in {time.time() - now / 1000:.0f} s")

    def turn(self, deadline: float = math.inf) -> None:
        """Run each contender that would end before the deadline, judging by its last run."""
        for name in self.names:
            started = time.monotonic()
            if started + self._took.get(name, 0) > deadline:
                continue
            if (timing := self._trial.of(NAMES[name], partial(self._run, name), None)) is None:
                continue
            self.timings[name].append(timing)
            self._took[name] = time.monotonic() - started
            _report(f"{NAMES[name]}: {timing.rate:,.0f}/s, {timing.records / timing.cpu_seconds:,.0f} by CPU second")

    def _run(self, name: str) -> Timing:
        if name == "job":
            folder = self._bench.folder / "job"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self._born, folder)
            return self._bench.job(folder, self._first, must_be_fresh=True)
        if name == "streams":
            return self._bench.streams()
        if name == "streams-table":
            return self._bench.streams_to_table()
        if name == "consumer":
            return self._bench.consumer()
        return self._bench.spark(name)


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
    for other, goal in (("copy", 0.75), ("raw", 0.75), ("streams", 1.2), ("streams-table", 1.2)):
        if "job" in best and other in best:
            ratio = best["job"].rate / best[other].rate
            per_cpu = ratio_per_cpu(best["job"], best[other])
            name = f"the job by: {NAMES[other]}"
            # Of the two plain copies, the goal refers to the one that writes the same rows.
            limit = "" if other == "raw" else f">= {goal}"
            figures.append(Figure(f"{name}, wall", ratio, "x", limit, ratio >= goal if limit else None))
            figures.append(Figure(f"{name}, per CPU second", per_cpu, "x", limit, per_cpu >= goal if limit else None))
    return figures


def ratio_per_cpu(one: Timing, other: Timing) -> float:
    """Return the ratio of two rates per CPU second."""
    return (one.records / one.cpu_seconds) / (other.records / other.cpu_seconds)


def _report(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloud", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="a twentieth of the counts, kept apart")
    add("--records", type=int, help=f"in the topic ({FULL.records:,})")
    add("--minutes", type=float, default=18, help="a contender that would end later is not repeated (%(default)s)")
    add(
        "--only",
        default=",".join(ALL),
        metavar="NAMES",
        help="of: %(default)s; the figures of others stay as they were",
    )
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(ALL):
        parser.error(f"--only: no such name: {', '.join(sorted(unknown))}")
    return given


if __name__ == "__main__":
    sys.exit(main())
