"""Starts, times and ends the contenders, one at a time, on one broker and one topic."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from benchmarks.cloud import examples
from simulators.services import session
from simulators.services.error import ServiceError
from simulators.services.install import jars, java, programs
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from simulators.services.process import Command, Process
from simulators.services.spark import SparkOptions, submit

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "cloud" / "job.py"
AUDIT = JOB.with_name("audit.py")
CONTENDERS = Path(__file__).with_name("spark.py")
STREAMS = ROOT / "benchmarks" / "streams" / "Dedup.java"
RUN_SECONDS_MAX = 600.0
WINDOW = "4h"
STATE_AGE_SECONDS = 7200
"""Age of a state for fresh traffic: events are fresh from a quarter of the window on."""
DRIVER_MEGABYTES = 1536
CORES = 2
_NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_TICKS = os.sysconf("SC_CLK_TCK")
_LATE = re.compile(r"stage=read .* late=[1-9]")
_RECEIPT = re.compile(r"stage=receipt offsets=(\d+)$", re.MULTILINE)
_QUERY_SECONDS = 0.1
"""Time between queries of a group's offsets, which take a millisecond of CPU each, most of it the broker's."""
STARTED = "contender=started"
"""The line of `spark.py` with which a contender's query has started."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One contender's run, by one clock for all: from its report that it reads until all of its output is committed.

    `cpu_seconds` includes the processes that work for the contender: those that it starts, and its database.
    `broker_cpu_seconds` is what the broker took meanwhile: it serves every contender, and keeps a changelog of one.
    """

    records: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s, {self.rate_per_cpu:,.0f} by CPU second"

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def rate_per_cpu(self) -> float:
        """Records per CPU second of all processes, the broker's included."""
        return self.records / (self.cpu_seconds + self.broker_cpu_seconds)


@dataclass(frozen=True, slots=True)
class Bench:
    """The resources that all contenders share."""

    broker: Broker
    topic: str
    partitions: int
    records: int
    batch: int
    folder: Path

    def copy(self) -> Timing:
        """Run Spark's plain copy in a fresh process."""
        process = self._start_spark("copy", self.batch)
        with ending(process):
            return self._timed((process,), STARTED, lambda: _finished_log(process))

    def spark_log(self, contender: str, batch: int, table: Path) -> str:
        """Run a contender of `spark.py` in a fresh process, and return its log."""
        process = self._start_spark(contender, batch, table)
        with ending(process):
            return _finished_log(process)

    def _start_spark(self, contender: str, batch: int, table: Path | None = None) -> Process:
        folder = self._fresh(contender)
        arguments = (contender, self.broker.bootstrap_servers, self.topic, str(table or folder), str(batch))
        return submit(CONTENDERS, arguments, folder, _options())

    def job(
        self,
        folder: Path,
        receipted_before: int,
        *options: str,
        records: int = 0,
        must_be_fresh: bool = False,
    ) -> Timing:
        """Run the job on a folder with its table and checkpoint, up to the last receipt."""
        process = self.start_job(folder, *options)
        wanted = receipted_before + (records or self.records)
        with ending(process):
            timing = self._timed((process,), "stage=started", lambda: self._wait_for_receipts(process, wanted))
            process.wait_until(lambda: _all_reported(process.log()), "the figures of all batches", RUN_SECONDS_MAX)
            process.terminate(60)
            log = process.log()
        if must_be_fresh and _LATE.search(log):
            raise ServiceError("job: some of its events were late, so this is no fresh traffic: is the clock right?")
        return replace(timing, records=records or self.records)

    def start_job(self, folder: Path, *options: str) -> Process:
        """Start the job and return at once."""
        places = ("--table", str(folder / "events"), "--checkpoint", str(folder / "checkpoint"))
        pace = ("--window", WINDOW, "--max-offsets-per-trigger", str(self.batch), "--trigger", "1s")
        return submit(JOB, (*self._ends, *places, *pace, *options), folder, _options())

    def audit(self, folder: Path, *options: str) -> float:
        """Audit a job's table from the topic's beginning on, and return the seconds, Spark's start included."""
        output = self._fresh("audit-output")
        started = time.monotonic()
        places = ("--table", str(folder / "events"), "--output", str(output))
        process = submit(AUDIT, (*self._ends, *places, *options), output, _options())
        with ending(process):
            if (status := process.wait(RUN_SECONDS_MAX)) != 0:
                raise ServiceError(f"audit: status {status}\n{process.log()[-2000:]}")
        return time.monotonic() - started

    @property
    def group(self) -> str:
        """The group of the job's receipts."""
        return f"{self.topic}-cloud"

    @property
    def _ends(self) -> tuple[str, ...]:
        return ("--bootstrap-servers", self.broker.bootstrap_servers, "--topic", self.topic, "--group", self.group)

    def _streams(self, survivors: str) -> Timing:
        """Run the equivalent in Kafka Streams, which writes the survivors to a topic."""
        compiler = programs.require("javac")
        folder = self._fresh("streams")
        classpath = ":".join([str(folder), *map(str, jars.paths(jars.STREAMS))])
        subprocess.run([compiler, "--release", "17", "-cp", classpath, "-d", str(folder), str(STREAMS)], check=True)
        group = f"streams-{uuid4().hex}"
        self.broker.create_topics(survivors, partitions=self.partitions)
        ends = (self.broker.bootstrap_servers, self.topic, survivors, group, str(folder / "state"))
        # The same memory as the job's driver.
        line = (str(java.require()), f"-Xmx{DRIVER_MEGABYTES}m", "-XX:+UseParallelGC", "-cp", classpath, "Dedup", *ends)
        process = Process(Command("streams", line, folder / "streams.log", folder))
        process.start()
        with ending(process):
            return self._timed((process,), "state=RUNNING", lambda: self.wait_for(process, group, self.records))

    def streams_to_table(self) -> tuple[Timing, Timing]:
        """Run Kafka Streams, then copy its topic by Spark into the rows that the job writes.

        Return the timing of Kafka Streams, and that of both: on the same cores the costs add up.
        """
        survivors = f"survivors-{uuid4().hex}"
        dedup = self._streams(survivors)
        copy = replace(self, topic=survivors).copy()
        both = Timing(
            self.records,
            dedup.seconds + copy.seconds,
            dedup.cpu_seconds + copy.cpu_seconds,
            dedup.broker_cpu_seconds + copy.broker_cpu_seconds,
        )
        return dedup, both

    def to_postgres(self, name: str) -> Timing:
        """Run the plain consumer or an example of docs/receipts.md, with its own PostgreSQL, up to its last receipt."""
        group, folder, servers = f"{name}-{uuid4().hex}", self._fresh(name), self.broker.bootstrap_servers
        line: tuple[str, ...]
        with Postgres(self._fresh("postgres")) as server:
            if name == "consumer":
                begin, file = "stage=assigned", server.write_connection(folder / "connection")
                ends = ("--bootstrap-servers", servers, "--topic", self.topic, "--group", group)
                line = (sys.executable, "-m", "cloud.consumer", *ends, "--connection", str(file), "--table", "readings")
            else:
                begin, database = "stage=begin", examples.database(server, name, "public")
                ends = ("-brokers", servers, "-topic", self.topic, "-group", group)
                line = (*examples.PROGRAMS[name](), *ends, "-database", database)
            process = Process(Command(name, line, folder / "consumer.log", ROOT))
            process.start()
            with ending(process):
                workers = (process, server.process)
                return self._timed(workers, begin, lambda: self.wait_for(process, group, self.records))

    def _wait_for_receipts(self, process: Process, records: int) -> None:
        """Wait until the job has logged and Kafka has the receipt of this number of records."""
        process.wait_until(lambda: receipted(process.log()) >= records, f"{records} records receipted", RUN_SECONDS_MAX)
        self.wait_for(process, self.group, records)

    def wait_for(self, process: Process, group: str, records: int) -> None:
        """Wait until a group has committed this number of offsets."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        places = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]

        def is_there() -> bool:
            return sum(max(0, one.offset) for one in committed(reader, places)) >= records

        try:
            process.wait_until(is_there, f"{records} records committed", RUN_SECONDS_MAX, _QUERY_SECONDS)
        finally:
            reader.close()

    def _timed(self, workers: Sequence[Process], begin: str, end: Callable[[], object]) -> Timing:
        """Time from the first worker's log line `begin` to the return of `end`, with the CPU time of all workers."""
        workers[0].wait_for_log(begin, RUN_SECONDS_MAX)
        used, served, started = sum(map(cpu_seconds, workers)), cpu_seconds(self.broker.process), time.monotonic()
        end()
        return Timing(
            self.records,
            time.monotonic() - started,
            sum(map(cpu_seconds, workers)) - used,
            cpu_seconds(self.broker.process) - served,
        )

    def _fresh(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


def committed(reader: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """Return a group's committed offsets; none while it has no coordinator yet."""
    try:
        return reader.committed(places, timeout=30)
    except KafkaException as error:
        if error.args[0].code() in _NO_COORDINATOR:
            return []
        raise


def cpu_seconds(process: Process) -> float:
    """Return the CPU time of a process and all of its descendants, ended ones included, in seconds."""
    total = 0
    for pid in session.with_descendants(process.pid):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICKS


def _finished_log(process: Process) -> str:
    """Wait until a contender has finished, and return its log; fail where it logs nothing for RUN_SECONDS_MAX."""
    known = ""

    def has_grown() -> bool:
        return len(process.log()) > len(known)

    while "contender=finished" not in known:
        process.wait_until(has_grown, "more in the log", RUN_SECONDS_MAX)
        known = process.log()
    return known


def receipted(log: str) -> int:
    """Return the number of records in the job's latest receipt, 0 without one."""
    return max(map(int, _RECEIPT.findall(log)), default=0)


def _all_reported(log: str) -> bool:
    """Whether the job has logged the figures of each committed batch, which appear a little later."""
    return log.count(" stage=committed ") == log.count(" stage=done ")


@contextmanager
def ending(process: Process) -> Iterator[None]:
    """Kill a contender's processes on leaving."""
    try:
        yield
    finally:
        process.kill()


def _options() -> SparkOptions:
    return SparkOptions(
        cores=CORES,
        driver_megabytes=DRIVER_MEGABYTES,
        settings={"spark.log.level": "WARN"},
        packages=("contract", "cloud"),
    )
