"""The job beside alternatives: `python -m benchmarks.cloud [--quick] [--rounds N] [--only a,b]`.

One broker and one topic of records of 200 bytes with 10 % duplicates, written in advance. The contenders read it one
after the other, each in a fresh process on the same cores, in rounds of alternating order; all are timed by one clock.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

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
    records = given.records or (RECORDS_QUICK if given.quick else RECORDS)
    folder = Path(tempfile.mkdtemp(prefix="oncegate-bench-"))
    try:
        with Broker(folder / "kafka") as broker:
            # A little more than a fifth: Spark rounds down, and would measure a sixth batch of six records.
            bench = Bench(broker, "events", PARTITIONS, records, records // BATCHES + 400, folder)
            contest = Contest(bench, given.only.split(","))
            contest.prepare()
            contest.run(1 if given.quick else given.rounds, started + given.minutes * 60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
    if given.quick or set(given.only.split(",")) != set(ALL):
        report.show("cloud", figures(contest.timings))
    else:
        report.keep("cloud", figures(contest.timings), **settings)
    return 1 if contest.failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloud", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="one round of a tenth of the records; nothing is kept")
    add("--records", type=int, help=f"in the topic (default: {RECORDS:,})")
    add("--rounds", type=int, default=ROUNDS, help="how often each contender runs (default: %(default)s)")
    add("--minutes", type=float, default=15, help="no round begins that would end later (default: %(default)s)")
    add("--only", default=",".join(ALL), metavar="NAMES", help="of: %(default)s; the results of a part are not kept")
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(ALL):
        parser.error(f"--only: no such name: {', '.join(sorted(unknown))}")
    return given


if __name__ == "__main__":
    sys.exit(main())
