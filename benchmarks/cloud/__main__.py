"""The job beside alternatives: `python -m benchmarks.cloud [--quick] [--rounds N] [--only a b]`.

One broker and one topic of records of 200 bytes with 10 % duplicates, written in advance. The contenders read it one
after the other, each in a fresh process on the same cores, in rounds of alternating order; all are timed by one clock.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.runs import DRIVER_MEGABYTES, FAILURES, STATE_AGE_SECONDS, WINDOW, Bench, Timing
from benchmarks.report import Figure
from simulators.services.kafka.broker import Broker

PARTITIONS = 4
RECORDS, RECORDS_QUICK = 600_000, 60_000
BATCHES = 5
ROUNDS = 5
NAMES = {
    "job": "the whole job to Delta, fresh traffic",
    "transform": "the whole job to Delta, with a transform that changes nothing",
    "effects": "the whole job to Delta, with effects that do nothing",
    "copy": "Spark, the job's rows without dedup, to Delta",
    "streams": "Kafka Streams, exactly-once v2, to a topic",
    "streams-table": "Kafka Streams, exactly-once v2, and its topic to Delta",
    "merge": "Spark, MERGE of everything, to Delta",
    "consumer": "plain consumer to PostgreSQL, one process",
    "go": "the example in Go, to PostgreSQL",
    "java": "the example in Java, to PostgreSQL",
}
FIRST_ROUND_ONLY = ("merge", "consumer", "go", "java")
"""Contenders that no goal refers to."""
GOALS = {"copy": 0.92, "streams-table": 1.4}
"""Goals for the job's rate, as multiples of other contenders'."""


def main() -> int:
    """Run the contest, print the table, write the JSON; exit status 1 where a contender failed."""
    started = time.monotonic()
    given = _arguments()
    records = RECORDS_QUICK if given.quick else RECORDS
    with report.folder() as folder, Broker(folder / "kafka") as broker:
        # A little more than a fifth: Spark rounds down, and would measure a sixth batch of six records.
        bench = Bench(broker, "events", PARTITIONS, records, records // BATCHES + 400, folder)
        contest = _Contest(bench, given.only)
        contest.prepare()
        contest.run(1 if given.quick else given.rounds, started + given.minutes * 60)
    took = (time.monotonic() - started) / 60
    print(f"all of it took {took:.1f} minutes", flush=True)
    settings = {
        "records": records,
        "value_bytes": topic.VALUE_BYTES,
        "window": WINDOW,
        "partitions": PARTITIONS,
        "driver_megabytes": DRIVER_MEGABYTES,
        "rounds": contest.rounds,
        "failed": contest.failed,
        "minutes": took,
    }
    is_kept = not given.quick and set(given.only) == set(NAMES)
    report.conclude("cloud", _figures(contest.timings), is_kept=is_kept, **settings)
    return 1 if contest.failed else 0


def _arguments() -> argparse.Namespace:
    parser = report.parser("cloud", __doc__, NAMES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each contender runs (%(default)s)")
    no_later = "no round begins that would end later (%(default)s)"
    parser.add_argument("--minutes", type=float, default=15, help=no_later)
    return parser.parse_args()


class _Contest:
    """One topic, and the contenders that read it in turns."""

    def __init__(self, bench: Bench, names: Sequence[str]) -> None:
        self.timings: dict[str, dict[int, Timing]] = {}
        """The timings of each contender by the number of the round."""
        self.rounds = 0
        self.failed: list[str] = []
        self._names = names
        self._bench = bench
        self._born = bench.folder / "born"
        self._first = 0

    def prepare(self) -> None:
        """Create the job's state, and write the topic."""
        bench, now = self._bench, time.time_ns() // 1_000_000
        servers = bench.broker.bootstrap_servers
        bench.broker.create_topics(bench.topic, partitions=bench.partitions)
        self._first = topic.send(servers, bench.topic, topic.records(10, now, seed=1))
        bench.job(self._born, 0, records=self._first)
        bench.spark_log("age", STATE_AGE_SECONDS, self._born / "events")
        now = time.time_ns() // 1_000_000
        sent = topic.send(servers, bench.topic, topic.records(bench.records, now))
        report.progress(f"topic: {sent:,} records in {time.time() - now / 1000:.0f} s")

    def run(self, rounds: int, deadline: float) -> None:
        """Run the rounds, every other one in reverse order; begin none that would end after the deadline."""
        took = 0.0
        for number in range(rounds):
            started = time.monotonic()
            if started + took > deadline:
                report.progress(f"no time for more than {number} rounds")
                return
            present = [name for name in self._names if number == 0 or name not in FIRST_ROUND_ONLY]
            took = 0.0
            for name in present if number % 2 == 0 else reversed(present):
                began = time.monotonic()
                self._turn(name, number)
                if name not in FIRST_ROUND_ONLY:
                    took += time.monotonic() - began
            self.rounds = number + 1

    def _turn(self, name: str, number: int) -> None:
        """Run one contender in this round; its failure costs its own figures alone."""
        if name == "streams":
            return  # measured as the first half of streams-table
        try:
            for part, timing in self._measure(name).items():
                self.timings.setdefault(part, {})[number] = timing
                report.progress(f"{NAMES[part]}: {timing.rate:,.0f}/s, {timing.rate_per_cpu:,.0f} by CPU second")
        except FAILURES as error:
            self.failed.append(name)
            report.progress(f"{NAMES[name]}: not measured: {error}")

    def _measure(self, name: str) -> Mapping[str, Timing]:
        bench = self._bench
        runs: dict[str, Callable[[], Timing]] = {
            "job": self._job,
            "transform": lambda: self._job("--transform", "idle:transform"),
            "effects": lambda: self._job("--effects", "idle:effects"),
            "consumer": bench.consumer,
            "go": lambda: bench.example("go"),
            "java": lambda: bench.example("java"),
        }
        if name == "streams-table":
            dedup, both = bench.streams_to_table()
            return {"streams": dedup, "streams-table": both}
        return {name: runs[name]() if name in runs else bench.spark(name)}

    def _job(self, *options: str) -> Timing:
        folder = self._bench.folder / "job"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._born, folder)
        (folder / "idle.py").write_text("def transform(rows):\n    return rows\ndef effects(rows, key):\n    pass\n")
        return self._bench.job(folder, self._first, *options, must_be_fresh=True)


def _figures(timings: Mapping[str, Mapping[int, Timing]]) -> list[Figure]:
    """Return the medians of all contenders, and the job's multiples of the others in the same rounds."""
    rows = [_row(NAMES[name], list(found.values())) for name, found in timings.items()]
    ours = timings.get("job", {})
    for other, peers in timings.items():
        if other == "job" or not (shared := sorted(ours.keys() & peers.keys())):
            continue
        rates = [ours[number].rate / peers[number].rate for number in shared]
        per_cpu = [ours[number].rate_per_cpu / peers[number].rate_per_cpu for number in shared]
        rows.append(report.middle(f"the job by: {NAMES[other]}, wall", rates, "x", GOALS.get(other), at_least=True))
        rows.append(report.middle(f"the job by: {NAMES[other]}, per CPU second", per_cpu, "x"))
    return rows


def _row(name: str, found: Sequence[Timing]) -> Figure:
    details = {
        "records_per_cpu_second": median(one.rate_per_cpu for one in found),
        "each_rate": [one.rate for one in found],
        "each_cpu_seconds": [one.cpu_seconds for one in found],
        "each_broker_cpu_seconds": [one.broker_cpu_seconds for one in found],
    }
    return Figure(name, median(one.rate for one in found), "records/s", details=details)


if __name__ == "__main__":
    sys.exit(main())
