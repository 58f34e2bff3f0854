"""Jobs that are killed right before one of the changes that they make to table, quarantine or checkpoint.

    python -m tests.crashes.job.killed_jobs [--part 1/8]

One table and one checkpoint live through all kills. Before each start, records are sent: new events, an exact
repetition, and now and then one that is quarantined. The job is killed right before its change number N, N+1, ... of
that start, JVM and Python together; the next start recovers. After each kill the table has no event twice, and all
events that a receipt covers; at the end it has every event once. The counts are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from simulators.services import spark
from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import CloudSide
from tests.support import changes

ROOT = Path(__file__).resolve().parents[3]
LAUNCH = ROOT / "simulators" / "launch.py"
EVENTS = 5
"""New events before each start."""
QUARANTINED_EVERY = 7
"""Starts from one record for the quarantine to the next."""
WATCH_SECONDS = 0.5
_VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")


@dataclass(slots=True)
class KilledJobs:
    """One topic, its table, and jobs that are killed one after the other."""

    cloud: CloudSide
    mutants: tuple[str, ...] = ()
    gateway: Gateway = field(default_factory=Gateway)
    sent: list[int | None] = field(default_factory=list)
    """By offset the number of the event; None of a record for the quarantine."""
    starts: int = 0

    def start(self, kill_at: int | None = None) -> changes.Run:
        """Send records, and start the job until it is killed, or has receipted everything and is stopped."""
        self._send()
        self.starts += 1
        data = Path(self.cloud.folder) / "data"
        places = ("--table", str(data / "events"), "--checkpoint", str(data / "checkpoint"), "--trigger", "1s")
        ends = ("--bootstrap-servers", self.cloud.bootstrap_servers, "--topic", self.cloud.topic)
        own = ("job", *self.mutants, "--", *ends, "--group", self.cloud.group, *places)
        options = replace(self.cloud.spark_options(), packages=("contract", "cloud"))
        command = spark.command(LAUNCH, own, self.cloud.folder / "spark", options)
        environment = {**os.environ, **command.environment, "PYTHONPATH": str(ROOT)}
        with self._all_receipted() as is_enough:
            return changes.run(command.arguments, data, environment, command.log_file, kill_at, is_enough=is_enough)

    def wrong(self, *, complete: bool = False) -> list[str]:
        """Return what is wrong in the table; `complete`: it must have everything."""
        rows = Counter(row["id"] for row in self.cloud.delta_rows("data/events"))
        covered = len(self.sent) if complete else self.cloud.receipted()
        due = {str(number) for number in self.sent[:covered] if number is not None}
        wrong = [f"event {number} is receipted and not there" for number in sorted(due - rows.keys(), key=int)]
        wrong += [f"event {number} is there {count} times" for number, count in rows.items() if count > 1]
        bad, quarantined = self.sent[:covered].count(None), len(self.cloud.delta_rows("data/events_quarantine"))
        if quarantined < bad or quarantined > self.sent.count(None):
            wrong.append(f"{quarantined} records are in quarantine, instead of {bad}")
        return wrong

    def log(self) -> str:
        """Return the end of the log."""
        return (self.cloud.folder / "spark" / "spark.log").read_text(errors="replace")[-3_000:]

    def _send(self) -> None:
        first = self.starts * EVENTS
        records = self.gateway.records(readings(EVENTS, start=first))
        self.sent += [*range(first, first + EVENTS), first]
        records.append(records[0])
        if self.starts % QUARANTINED_EVERY == 0:
            records.append(replace(records[0], value=b"not JSON"))
            self.sent.append(None)
        self.cloud.send(records, partition=0)

    @contextmanager
    def _all_receipted(self) -> Iterator[Callable[[], bool]]:
        """Watch the receipts in a thread; what is yielded returns whether they cover all records."""
        done, over = threading.Event(), threading.Event()

        def watch() -> None:
            while not over.wait(WATCH_SECONDS):
                if self.cloud.receipted() >= len(self.sent):
                    done.set()
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield done.is_set
        finally:
            over.set()
            thread.join()


def kinds_of(made: changes.Run, folder: Path) -> dict[str, list[int]]:
    """Return the numbers of the changes by their kind: the system call, and the file without numbers and ids."""
    kinds: dict[str, list[int]] = {}
    for number, change in enumerate(made.changes):
        kinds.setdefault(_VARIABLE.sub("#", change.replace(str(folder), "")), []).append(number)
    return kinds


def run(work: Path, part: int, parts: int, mutants: tuple[str, ...] = ()) -> tuple[dict[str, int], list[str]]:
    """Kill at one part of the changes; return the counts, and what is wrong."""
    with Broker(work / "kafka") as broker:
        topic = f"killed-{uuid4().hex[:8]}"
        broker.create_topics(topic, partitions=1)
        jobs = KilledJobs(CloudSide(broker.bootstrap_servers, topic, work / "cloud"), mutants)
        (work / "cloud" / "data").mkdir(parents=True)
        try:
            return _kill(jobs, part, parts)
        finally:
            jobs.cloud.close()


def _kill(jobs: KilledJobs, part: int, parts: int) -> tuple[dict[str, int], list[str]]:
    first = jobs.start()
    counts = {"changes": len(first.changes), "kinds": len(kinds_of(first, jobs.cloud.folder)), "killed": 0}
    wrong = _ended(first, jobs)
    for number in range(part - 1, len(first.changes), parts):
        if wrong:
            break
        made = jobs.start(number)
        if made.status == -9:
            counts["killed"] += 1
        else:  # this start has made fewer changes, and has ended as it should
            wrong = _ended(made, jobs)
        wrong += [f"killed before change {number}, after {made.changes[-1:]}: {one}" for one in jobs.wrong()]
        print(f"{number} of {len(first.changes)}: status {made.status}", file=sys.stderr, flush=True)
    if not wrong:
        wrong = _ended(jobs.start(), jobs) + jobs.wrong(complete=True)
    return counts, wrong


def _ended(made: changes.Run, jobs: KilledJobs) -> list[str]:
    return [] if made.status == 0 else [f"the job has ended with status {made.status}: {jobs.log()}"]


def receipts_before_rows() -> None:
    """Commit the receipts of a batch before its rows: a mutant, whose losses must be found."""
    from cloud.stream.batch import BatchWriter, next_commit

    write = BatchWriter._write

    def receipt_and_write(self: Any, survivors: Any, planned: Any, overlap: Any) -> Any:
        self._receipts.commit(next_commit(self._last, planned, self._window_seconds, self._leader_epochs))
        return write(self, survivors, planned, overlap)

    BatchWriter._write = receipt_and_write  # type: ignore[method-assign]


def main() -> None:
    """Kill jobs, print the counts, and exit with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.job.killed_jobs", description=__doc__)
    parser.add_argument("--part", default="1/1", help="such as 3/8: every 8th change, from the third on")
    parser.add_argument("--mutant", help="a function of this module that breaks the job")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    mutants = (f"tests.crashes.job.killed_jobs:{given.mutant}",) if given.mutant else ()
    with tempfile.TemporaryDirectory(prefix="killed-jobs-") as name:
        counts, wrong = run(Path(name), part, parts, mutants)
    print("\n".join([json.dumps(counts), *wrong]), flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
