"""The cloud job with its Delta table on a disk that forgets: cuts after each flush and receipt, and at random moments.

    python -m tests.crashes.job.delta_cuts [--batches 3] [--cuts 1000] [--seed N] [--mutant receipts_without_flush]

The whole job writes events from a real Kafka. FUSE does not pass syncfs(2) on to a file system in user space, so the
job's process notes each of its calls once it has returned, and each commit of receipts. Torn entries at the end of the
table's log, which no receipt covers, are removed before the table is read. The counts are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped]

from contract.topics import EVENTS
from simulators.evidence import delta
from simulators.evidence.delta import TableError
from simulators.evidence.receipts import behind
from simulators.evidence.topic import TopicError
from simulators.run.job import Job
from simulators.services.kafka.broker import Broker
from tests.agent.store.faults.recording import Sync
from tests.cloud.gateway import Gateway, readings, send
from tests.crashes.disk_steps import SyncFolder
from tests.crashes.recorded_disk import ACKED, RecordedDisk, recorded, steps_of
from tests.crashes.surviving_files import Survivors, moments_of, survivors
from tests.support.waiting import wait_until

EVENTS_PER_BATCH = 20
BATCH_SECONDS_MAX = 900.0
FLUSHED = "user.flushed"
MOUNT = "ONCEGATE_TEST_MOUNT"
"""The variable that names the mounted table to the job's process."""


class RecordedTable(RecordedDisk):
    """A disk whose folders may be removed, with flushes of everything."""

    def rmdir(self, path: str) -> int:
        self._real(path).rmdir()
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if name != FLUSHED:
            return super().setxattr(path, name, value, options, position)
        folders = {"/", *(f"/{one.relative_to(self._folder)}" for one in self._folder.rglob("*") if one.is_dir())}
        self._steps += [Sync(file) for file in sorted({*self._files.values(), *self._open.values()})]
        self._steps += [SyncFolder(folder) for folder in sorted(folders)]
        return 0


def note_flushes_and_receipts() -> None:
    """Note in the record what the job does; called in the job's process."""
    from cloud.runtime import disk
    from cloud.stream.kafka_admin import KafkaAdmin

    mount, flush, commit = os.environ[MOUNT], disk._flush, KafkaAdmin.commit

    def flush_and_note(file: int, folder: str) -> None:
        flush(file, folder)
        if folder == mount:
            os.setxattr(mount, FLUSHED, b"1")

    def commit_and_note(self: Any, group: str, offsets: Any, *more: Any) -> None:
        commit(self, group, offsets, *more)
        os.setxattr(mount, ACKED, " ".join(map(str, range(sum(offsets.values())))).encode())

    disk._flush = flush_and_note
    KafkaAdmin.commit = commit_and_note  # type: ignore[method-assign, assignment]


def receipts_without_flush() -> None:
    """Note receipts that do not wait for the flush: a mutant, whose losses must be found."""
    from cloud.runtime import disk

    note_flushes_and_receipts()
    disk._flush = lambda file, folder: None


def record(work: Path, batches: int, patch: str) -> Path:
    """Run broker and job until all events are receipted; return the record of the table's disk."""
    backing, steps = work / "backing", work / "steps"
    backing.mkdir()
    with Broker(work / "kafka") as broker:
        broker.create_topics(EVENTS, partitions=1)
        job = Job(
            work / "cloud",
            work / "job.log",
            broker.bootstrap_servers,
            (f"tests.crashes.job.delta_cuts:{patch}",),
        )
        os.environ[MOUNT] = str(job.table)
        with recorded(job.table, backing, steps, "tests.crashes.job.delta_cuts"), job:
            job.wait()
            gateway = Gateway()
            for number in range(batches):
                first = number * EVENTS_PER_BATCH
                events = readings(EVENTS_PER_BATCH, start=first)
                send(broker.bootstrap_servers, EVENTS, gateway.records(events), 0)
                wait_until(lambda: _is_written(broker, job), f"batch {number}", BATCH_SECONDS_MAX)
            job.stop()
    return steps


def _is_written(broker: Broker, job: Job) -> bool:
    """Whether the table has the whole topic; False while the broker has no answer, as under a high load."""
    try:
        return behind(broker.bootstrap_servers, job.table) == 0
    except TopicError:
        return False


def judge(left: Survivors, folder: Path) -> tuple[str, list[str]]:
    """Return what kind of table a cut has left, and what is wrong with it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    left.write_to(folder)
    for optional in (folder / "_delta_log").glob("*.crc"):
        optional.unlink()  # a torn one keeps delta-rs from reading the table; it only repeats what the log has
    kind = "whole"
    while True:
        try:
            rows = Counter(row.offset for row in delta.read(folder))
            break
        except TableError as error:
            kind = "torn"
            if not _remove_last_entry(folder):
                return "wrong", [str(error)]
    wrong = [f"event {number} is receipted and not there" for number in sorted(left.acked - rows.keys())]
    wrong += [f"event {number} is there {count} times" for number, count in sorted(rows.items()) if count > 1]
    return "wrong" if wrong else kind, wrong


def _remove_last_entry(folder: Path) -> bool:
    """Remove the last entry of the log, which a cut has torn; return whether there was one."""
    entries = sorted((folder / "_delta_log").glob("*.json"))
    if not entries:
        return False
    entries[-1].unlink()
    return True


def main() -> None:
    """Record a run, cut it, print the counts, and exit with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.job.delta_cuts", description=__doc__)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--cuts", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--mutant", default=note_flushes_and_receipts.__name__, help="a function of this module")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="delta-cuts-") as name:
        steps = steps_of(record(Path(name), arguments.batches, arguments.mutant))
        moments = moments_of(steps, arguments.cuts, chance)
        moments += [chance.randint(0, len(steps)) for _ in range(arguments.cuts - len(moments))]
        for left in survivors(steps, {}, sorted(moments), chance):
            kind, wrong = judge(left, Path(name) / "left")
            outcomes[kind] += 1
            for one in wrong:
                print(f"step {left.moment} of {len(steps)}: {one}", file=sys.stderr)
    kinds = Counter(type(step).__name__ for step in steps)
    print(json.dumps({"seed": arguments.seed, "steps": dict(kinds), "cuts": dict(outcomes)}, indent=1))
    sys.exit(outcomes["wrong"] > 0)


if __name__ == "__main__":
    if len(sys.argv) == 4 and not sys.argv[1].startswith("-"):
        disk, backing, steps = map(Path, sys.argv[1:])
        mfusepy.FUSE(RecordedTable(backing, steps), str(disk), foreground=True, nothreads=True, hard_remove=True)
    else:
        main()
