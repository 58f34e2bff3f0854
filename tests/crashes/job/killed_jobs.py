"""Jobs with one fault among the changes that they make to table, quarantine or checkpoint.

    python -m tests.crashes.job.killed_jobs [--scenario first|later] [--fault EIO] [--part 1/8] [--sink iceberg]

Before each start, records are sent: new events, an exact repetition, and now and then one that is quarantined. The job
is killed right before its change number N of that start, JVM and Python together, or that change fails; the next start
recovers. After each start the table has no event twice, and all events that a receipt covers; at the end it has every
event once. In the scenario `first` each start has its own table and checkpoint, which are being created; in `later` one
table and one checkpoint go through all of them. With `--effects` the job also writes each new event into another table,
which is judged alike. The counts are printed as JSON; the progress goes to stderr.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from rich.console import Console

from simulators.display import Display
from simulators.services import spark
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, ICEBERG, CloudSide
from tests.crashes.job import effects as hooks
from tests.support import changes
from tests.support.changes import Fault
from tests.support.iceberg import Iceberg
from tests.support.quick_start import QUICK_START

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = ("first", "later")
LAUNCH = ROOT / "simulators" / "launch.py"
EVENTS = 5
"""New events before each start."""
QUARANTINED_EVERY = 7
"""Starts from one record for the quarantine to the next."""
WATCH_SECONDS = 0.5
START_SECONDS_MAX = 600.0
"""How long a start may take, the end of the job included."""
_VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")


@dataclass(slots=True)
class KilledJobs:
    """One topic, its table, and jobs that are killed one after the other."""

    cloud: CloudSide
    mutants: tuple[str, ...] = ()
    server: Postgres | None = None
    """Where the effects write to, if that is not a Delta table."""
    effects: str | None = None
    """The function of `hooks`."""
    gateway: Gateway = field(default_factory=Gateway)
    sent: list[int | None] = field(default_factory=list)
    """By offset the number of the event; None of a record for the quarantine."""
    starts: int = 0

    def start(self, fault_at: int | None = None, fault: Fault = Fault.KILL) -> changes.Run:
        """Send records, and start the job until it is killed or fails, or has receipted everything and is stopped."""
        self._send()
        self.starts += 1
        data = Path(self.cloud.folder) / "data"
        table = ("--table", str(data / "events")) if self.cloud.iceberg is None else self.cloud.sink_options()
        places = (*table, "--checkpoint", str(data / "checkpoint"), "--trigger", "1s")
        ends = ("--bootstrap-servers", self.cloud.bootstrap_servers, "--topic", self.cloud.topic)
        also = () if self.effects is None else ("--effects", f"{hooks.__name__}:{self.effects}")
        own = ("job", *self.mutants, "--", *ends, "--group", self.cloud.group, *places, *also)
        command = spark.command(LAUNCH, own, self.cloud.folder / "spark", self.cloud.spark_options())
        environment = {**QUICK_START, **os.environ, **command.environment, "PYTHONPATH": str(ROOT)}
        environment[hooks.PLACE] = str(self._place_of_effects())
        with self._all_receipted() as is_enough:
            log = command.log_file
            return changes.run(command.arguments, data, environment, log, fault_at, fault, is_enough=is_enough)

    def wrong(self, *, complete: bool = False) -> list[str]:
        """Return what is wrong in the table; `complete`: it must have everything."""
        rows = Counter(row["id"] for row in self._rows())
        covered = len(self.sent) if complete else self.cloud.receipted()
        due = {str(number) for number in self.sent[:covered] if number is not None}
        wrong = [f"event {number} is receipted and not there" for number in sorted(due - rows.keys(), key=int)]
        wrong += [f"event {number} is there {count} times" for number, count in rows.items() if count > 1]
        if self.effects is not None:
            made = Counter(self._made())
            wrong += [f"event {number} is receipted without effect" for number in sorted(due - made.keys(), key=int)]
            wrong += [f"event {number} has {count} effects" for number, count in made.items() if count > 1]
        bad, quarantined = self.sent[:covered].count(None), len(self._quarantined())
        if quarantined < bad or quarantined > self.sent.count(None):
            wrong.append(f"{quarantined} records are in quarantine, instead of {bad}")
        return wrong

    def log(self) -> str:
        return (self.cloud.folder / "spark" / "spark.log").read_text(errors="replace")[-3_000:]

    def _rows(self) -> list[dict[str, Any]]:
        return self.cloud.delta_rows("data/events") if self.cloud.iceberg is None else self.cloud.rows()

    def _quarantined(self) -> list[dict[str, Any]]:
        of_delta = "data/events_quarantine"
        return self.cloud.delta_rows(of_delta) if self.cloud.iceberg is None else self.cloud.quarantined()

    def _place_of_effects(self) -> Path:
        if self.server is None:
            return Path(self.cloud.folder) / "data" / hooks.TABLE
        with psycopg.connect(self.server.connection) as connection:
            if self.starts == 1:  # the table of another job
                connection.execute(f"DROP TABLE IF EXISTS {hooks.TABLE}, {hooks.TABLE}_keys".encode())
            connection.execute(f"CREATE TABLE IF NOT EXISTS {hooks.TABLE} (id text)".encode())
        return self.server.write_connection(Path(self.cloud.folder) / "connection")

    def _made(self) -> list[str]:
        """Return the ids that the effects have written."""
        if self.server is None:
            return [row["id"] for row in self.cloud.delta_rows(f"data/{hooks.TABLE}")]
        with psycopg.connect(self.server.connection) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {hooks.TABLE}".encode())]

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
        """Watch the receipts in a thread; what is yielded returns whether they cover all records.

        It raises TimeoutError where they do not after START_SECONDS_MAX, and the job has not ended.
        """
        done, over = threading.Event(), threading.Event()
        end = time.monotonic() + START_SECONDS_MAX

        def is_enough() -> bool:
            if not done.is_set() and time.monotonic() > end:
                raise TimeoutError
            return done.is_set()

        def watch() -> None:
            while not over.wait(WATCH_SECONDS):
                if self.cloud.receipted() >= len(self.sent):
                    done.set()
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield is_enough
        finally:
            over.set()
            thread.join()


def kinds_of(made: changes.Run, folder: Path) -> set[str]:
    """Return the kinds of the changes: the system call, and the file without numbers and ids."""
    return {_VARIABLE.sub("#", change.replace(str(folder), "")) for change in made.changes}


@dataclass(slots=True)
class Series:
    """The faults of one scenario, with one broker."""

    broker: Broker
    work: Path
    display: Display
    server: Postgres | None
    fault: Fault
    mutants: tuple[str, ...]
    effects: str | None
    sink: str
    made: Sequence[str] = ()
    """The changes of a start without a fault."""
    kinds: int = 0
    faults: int = 0
    """How many starts have had their fault."""
    ended: int = 0
    """How many of these the job has ended by itself."""

    def counts(self, scenario: str) -> dict[str, object]:
        made = {"changes": len(self.made), "kinds": self.kinds, "faults": self.faults, "ended": self.ended}
        return {"scenario": scenario, "fault": self.fault, **made}

    def later(self, part: int, parts: int) -> list[str]:
        """Disturb the starts of one table and one checkpoint, one after the other; return what is wrong."""
        self.display.phase("later: two starts without a fault; the changes of the second are counted")
        with self._jobs() as jobs:
            wrong = _ended(jobs.start(), jobs) or self._recorded(jobs)
            for number in self._numbers(part, parts):
                if wrong:
                    return wrong
                wrong = self._disturb(jobs, number)
            return wrong or _ended(jobs.start(), jobs) or jobs.wrong(complete=True)

    def first(self, part: int, parts: int) -> list[str]:
        """Disturb starts that create table and checkpoint, and start each again; return what is wrong."""
        self.display.phase("first: one start without a fault, whose changes are counted")
        with self._jobs() as jobs:
            wrong = self._recorded(jobs)
        for number in self._numbers(part, parts):
            if wrong:
                break
            with self._jobs() as jobs:
                wrong = self._disturb(jobs, number) or _ended(jobs.start(), jobs) or jobs.wrong(complete=True)
        return wrong

    @contextmanager
    def _jobs(self) -> Iterator[KilledJobs]:
        topic = f"killed.{uuid4().hex[:8]}"
        self.broker.create_topics(topic, partitions=1)
        data = self.work / topic / "data"
        data.mkdir(parents=True)
        iceberg = Iceberg(data) if self.sink == ICEBERG else None
        cloud = CloudSide(self.broker.bootstrap_servers, topic, data.parent, iceberg=iceberg)
        try:
            yield KilledJobs(cloud, self.mutants, self.server, self.effects)
        finally:
            cloud.close()

    def _recorded(self, jobs: KilledJobs) -> list[str]:
        """Count the changes of a start without a fault."""
        made = jobs.start()
        self.made, self.kinds = made.changes, len(kinds_of(made, jobs.cloud.folder))
        return _ended(made, jobs)

    def _numbers(self, part: int, parts: int) -> Iterator[int]:
        """Yield the changes that are to have the fault, and show the progress."""
        every = [number for number, one in enumerate(self.made) if changes.can_have(one, self.fault)]
        numbers = every[part - 1 :: parts]
        self.display.phase(f"{self.fault} at {len(numbers)} of the {len(self.made)} changes of a start")
        for done, number in enumerate(numbers):
            self.display.count(done, len(numbers), f"{done} of {len(numbers)} done, {self.faults} with the fault")
            yield number

    def _disturb(self, jobs: KilledJobs, number: int) -> list[str]:
        try:
            made = jobs.start(number, self.fault)
        except TimeoutError:
            return [f"{self.fault} at change {number}: the job neither ends nor continues: {jobs.log()}"]
        if self.fault is Fault.KILL:
            if made.status != -signal.SIGKILL:  # this start has made fewer changes, and has ended as it should
                return _ended(made, jobs)
            place = f"killed before change {number}, after {made.changes[-1:]}"
        else:
            if len(made.changes) <= number or not changes.can_have(made.changes[number], self.fault):
                return _ended(made, jobs)
            self.ended += made.status != 0
            place = f"{self.fault} at change {number}, {made.changes[number]}, status {made.status}"
        self.faults += 1
        return [f"{place}: {one}" for one in jobs.wrong()]


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


def progress_before_effects() -> None:
    """Keep a batch's key as done before its effects: a mutant, whose losses must be found."""
    from cloud.stream.effects import Effects

    def keep_and_make(self: Any, commit: Any) -> bool:
        if (new := self._sink.new_rows()) is not None and new.key != self._checkpoint.read_done():
            self._checkpoint.write_done(new.key)
            self._calls.attempt(new.rows, new.key)
        return True

    Effects.__call__ = keep_and_make  # type: ignore[method-assign]


def main() -> None:
    """Disturb jobs, print the counts, and exit with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.job.killed_jobs", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--fault", type=Fault, choices=list(Fault), default=Fault.KILL)
    parser.add_argument("--part", default="1/1", help="such as 3/8: every 8th change, from the third on")
    parser.add_argument("--mutant", help="a function of this module that breaks the job")
    parser.add_argument("--sink", choices=(DELTA, ICEBERG), default=DELTA)
    parser.add_argument("--effects", choices=("delta", "postgres"), help="where the job also writes each new event")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    mutants = (f"{__spec__.name}:{given.mutant}",) if given.mutant else ()
    failed = False
    for scenario in [given.scenario] if given.scenario else SCENARIOS:
        with (
            tempfile.TemporaryDirectory(prefix="killed-jobs-") as name,
            Broker(Path(name) / "kafka") as broker,
            Postgres(Path(name) / "postgres") if given.effects == "postgres" else nullcontext() as server,
            Display(Console(stderr=True)) as display,
        ):
            series = Series(broker, Path(name), display, server, given.fault, mutants, given.effects, given.sink)
            wrong = series.first(part, parts) if scenario == "first" else series.later(part, parts)
        print("\n".join([json.dumps(series.counts(scenario)), *wrong]), flush=True)
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
