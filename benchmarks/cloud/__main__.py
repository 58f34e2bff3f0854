"""The job beside alternatives: `python -m benchmarks.cloud [--quick] [--rounds N] [--only a b]`.

One broker and one topic of records of 200 bytes with 10 % duplicates, written in advance. The contenders read it one
after the other, each in a fresh process on the same cores, in rounds of alternating order; all are timed by one clock.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks import report
from benchmarks.cloud import topic
from benchmarks.cloud.contest import NAMES as ALL
from benchmarks.cloud.contest import Contest, figures
from benchmarks.cloud.runs import DRIVER_MEGABYTES, WINDOW, Bench
from simulators.services.kafka.broker import Broker

PARTITIONS = 4
RECORDS, RECORDS_QUICK = 600_000, 60_000
BATCHES = 5
ROUNDS = 5


def main() -> int:
    """Run the contest, print the table, write the JSON; exit status 1 where a contender failed."""
    started = time.monotonic()
    given = _arguments()
    records = RECORDS_QUICK if given.quick else RECORDS
    with report.folder() as folder, Broker(folder / "kafka") as broker:
        # A little more than a fifth: Spark rounds down, and would measure a sixth batch of six records.
        bench = Bench(broker, "events", PARTITIONS, records, records // BATCHES + 400, folder)
        contest = Contest(bench, given.only)
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
    is_kept = not given.quick and set(given.only) == set(ALL)
    report.conclude("cloud", figures(contest.timings), is_kept=is_kept, **settings)
    return 1 if contest.failed else 0


def _arguments() -> argparse.Namespace:
    parser = report.parser("cloud", __doc__, ALL)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each contender runs (%(default)s)")
    no_later = "no round begins that would end later (%(default)s)"
    parser.add_argument("--minutes", type=float, default=15, help=no_later)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
