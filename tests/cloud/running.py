"""The job as its users run it: spark-submit, a broker, a table in a folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from psycopg.errors import UndefinedTable
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from agent.forward.receipts.group_offsets import read_receipt
from cloud import job
from cloud.jars import ivy
from cloud.runtime.shutdown import StopRequest
from cloud.settings import parse
from cloud.stream.checkpoint import Checkpoint
from cloud.stream.progress import Observer
from simulators.services.install import jars
from simulators.services.postgres import Postgres
from simulators.services.process import Process
from simulators.services.spark import SparkOptions, submit
from tests.cloud.gateway import Record, send
from tests.support import older_spark
from tests.support.iceberg import Iceberg
from tests.support.s3 import S3
from tests.support.waiting import log_bytes, wait_for_end, wait_for_work

ROOT = Path(__file__).resolve().parents[2]
STANDSTILL_SECONDS_MAX = 180.0
"""Maximum time without a log line while Spark starts on a busy machine."""
PARTITIONS = 3
_ADMIN_SECONDS_MAX = 60
DELTA, DELTA_ON_S3, ICEBERG, POSTGRES = "delta", "delta-on-s3", "iceberg", "postgres"
_SETTINGS = {"spark.log.level": "WARN", "spark.executor.memory": "640m", "spark.executor.cores": "1"}
_SWITCHED_OFF = {"spark.hadoop.delta.enableFastS3AListFrom": "true"}
"""With it no table in S3 opens under Spark 4.2, and maintenance may remove one under 4.1 (decision 81)."""
_NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


@dataclass(slots=True)
class CloudSide:
    """One topic, one table, and the jobs between them."""

    bootstrap_servers: str
    topic: str
    folder: Path
    window: str = "1h"
    checkpoint: str = "checkpoint"
    table_suffix: str = ""
    """What distinguishes the table in PostgreSQL from others of the same topic."""
    jobs: list[Process] = field(default_factory=list)
    group_reader: Consumer = field(init=False)
    postgres: Postgres | None = None
    """The server with the table; None for Delta."""
    s3: S3 | None = None
    """The server with table and checkpoint; None for folders."""
    iceberg: Iceberg | None = None
    """The catalog with the table; None for other sinks."""
    sink: tuple[str, ...] = ()
    """The options of another package's sink."""
    master: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    spark_home: Path = field(default_factory=ivy.pyspark_folder)
    release: Path = ROOT
    """The folder of the sources whose programs are started."""

    def __post_init__(self) -> None:
        # Never a member. Not AdminClient.list_consumer_group_offsets: it crashes before there is a coordinator.
        self.group_reader = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.group})

    def close(self) -> None:
        for one in self.jobs:
            one.kill()
        self.group_reader.close()

    def send(self, records: list[Record], partition: int | None = None) -> None:
        send(self.bootstrap_servers, self.topic, records, partition)

    def delete_records(self, ends: dict[int, int]) -> None:
        """Delete the records below these offsets, as retention does; all of a partition below OFFSET_END."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        wanted = [TopicPartition(self.topic, partition, offset) for partition, offset in ends.items()]
        for answer in admin.delete_records(wanted).values():
            answer.result(_ADMIN_SECONDS_MAX)

    def start(self, *options: str) -> Process:
        """Start a job, and return it before it is ready."""
        self.jobs.append(submit(self.program("job"), self.words(*options), self.folder, self.spark_options()))
        return self.jobs[-1]

    def words(self, *options: str) -> tuple[str, ...]:
        places = (*self.ends(), *self.sink_options(), "--checkpoint", self.place(self.checkpoint))
        return (*places, "--window", self.window, "--trigger", "1s", *options)

    def ends(self) -> tuple[str, ...]:
        return ("--bootstrap-servers", self.bootstrap_servers, "--topic", self.topic, "--group", self.group)

    def run_here(self, spark: SparkSession, observer: Observer, stop: StopRequest, *options: str) -> None:
        settings = job.qualify(spark, parse(self.words(*options)))
        job.run_on_checkpoint(spark, settings, Checkpoint(spark, settings.checkpoint, self.topic), observer, stop)

    def maintain(self, *options: str) -> Process:
        """Start the maintenance of the table in a separate process."""
        folder = self.folder / "maintenance"
        folder.mkdir(exist_ok=True)
        return submit(self.program("maintenance"), (*self.sink_options(), *options), folder, self.spark_options())

    def audit(self, *options: str, output: str = "audit") -> Process:
        """Start an audit in a separate process, without a grace period."""
        places = (*self.sink_options(), "--output", self.place(output), "--grace", "0s")
        (self.folder / output).mkdir(exist_ok=True)
        words = (*self.ends(), *places, *options)
        audit = submit(self.program("audit"), words, self.folder / output, self.spark_options())
        self.jobs.append(audit)
        return audit

    def audited(self, status: int, *options: str, output: str = "audit") -> str:
        """Run an audit that ends with a status, and return its line of labels."""
        audit = self.audit(*options, output=output)
        assert self.wait_for_end(audit) == status, audit.log()[-3000:]
        self.jobs.remove(audit)
        return audit.log().rpartition("labels: ")[2].partition("\n")[0]

    def program(self, name: str) -> Path:
        return self.release / "cloud" / f"{name}.py"

    def spark_options(self) -> SparkOptions:
        """Return the options that Spark needs to reach the table."""
        options = SparkOptions(
            settings=_SETTINGS,
            master=self.master,
            environment=self.environment,
            home=self.spark_home,
            sources=self.release,
        )
        if self.iceberg is not None:
            return replace(options, home=older_spark.home(), jar_sets=(*options.jar_sets, jars.ICEBERG))
        if self.s3 is None:
            return options
        return replace(
            options,
            settings={**_SETTINGS, **self.s3.spark_settings(), **_SWITCHED_OFF},
            jar_sets=(*options.jar_sets, jars.S3A),
        )

    def place(self, name: str) -> str:
        """Return the address of a folder beside the table."""
        return str(self.folder / name) if self.s3 is None else self.s3.uri(f"{self.topic}/{name}")

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint's folder, as after moving only the table."""
        if self.s3 is None:
            shutil.rmtree(self.folder / self.checkpoint)
        else:
            self.s3.remove(f"{self.topic}/{self.checkpoint}")

    @contextmanager
    def rows_held_back(self) -> Iterator[None]:
        """Lock the table in PostgreSQL against additions for a while; a Delta table is unchanged."""
        if self.postgres is None:
            yield
            return
        with psycopg.connect(self.postgres.connection) as connection:
            connection.execute(f"LOCK TABLE {self.table_name} IN EXCLUSIVE MODE".encode())
            yield

    def kill(self) -> None:
        """End the latest job by SIGKILL, JVM and Python."""
        self.jobs[-1].kill()

    def stop(self) -> int:
        self.jobs[-1].request_end()
        return self.wait_for_end()

    def wait_for_end(self, job: Process | None = None) -> int:
        """Wait until a job ends by itself, by default the latest, and return its exit status."""
        return wait_for_end(job or self.jobs[-1], STANDSTILL_SECONDS_MAX)

    def wait_for_log(self, text: str) -> None:
        self.wait(lambda: text in self.jobs[-1].log(), f"{text!r} in the log")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail once the latest job stands still."""
        self._wait_for_count(lambda: int(condition()), 1, what)

    def wait_for_receipts(self, records: int) -> None:
        self._wait_for_count(self.receipted, records, "records are receipted")

    def wait_for_rows(self, count: int) -> None:
        self._wait_for_count(lambda: len(self.rows()), count, "rows")

    def _wait_for_count(self, count: Callable[[], int], goal: int, what: str) -> None:
        job = self.jobs[-1]
        wait_for_work(job, count, goal, what, STANDSTILL_SECONDS_MAX, work=lambda: log_bytes(job))

    @property
    def group(self) -> str:
        return f"{self.topic}-cloud"

    @property
    def of_gateways(self) -> dict[str, str]:
        """The environment of a gateway that sends to this topic and has its receipts."""
        names = {"KAFKA__TOPIC": self.topic, "RECEIPTS__GROUP": self.group, "RECEIPTS__POLL_SECONDS": "1s"}
        return {f"ONCEGATE_{name}": value for name, value in names.items()}

    @property
    def table_name(self) -> str:
        """The table in PostgreSQL or Iceberg, one for each topic unless there is a suffix."""
        return ("db." if self.iceberg else "") + self.topic.replace(".", "_") + self.table_suffix

    @property
    def table_id(self) -> str:
        if self.iceberg is not None:
            file = self.iceberg.metadata(self.table_name)
            assert file is not None
            return str(json.loads(file.read_text())["table-uuid"])
        if self.postgres is None:
            table = self._delta("events")
            assert table is not None
            return str(table.metadata().id)
        comment = _select(self.postgres, f"SELECT obj_description('{self.table_name}'::regclass, 'pg_class') AS it")
        return str(comment[0]["it"]).removeprefix("oncegate:")

    def marks(self) -> list[str]:
        """Return the fingerprints in the table, as hex, sorted."""
        return sorted(bytes(row["fingerprint"]).hex() for row in self.rows())

    def rows(self) -> list[dict[str, Any]]:
        if self.postgres is not None:
            return _select(self.postgres, f"SELECT * FROM {self.table_name}")
        if self.iceberg is not None:
            return self.iceberg.rows(self.table_name)
        return _rows(self._delta("events"))

    def quarantined(self) -> list[dict[str, Any]]:
        if self.postgres is not None:
            return _select(self.postgres, f"SELECT * FROM {self.table_name}_quarantine")
        if self.iceberg is not None:
            return self.iceberg.rows(f"{self.table_name}_quarantine")
        return _rows(self._delta("events_quarantine"))

    def versions(self, name: str) -> int:
        """Return the number of commits of a Delta table beside the events."""
        table = self._delta(name)
        return 0 if table is None else table.version() + 1

    def delta_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a Delta table beside the events."""
        return _rows(self._delta(name))

    def _delta(self, name: str) -> DeltaTable | None:
        try:
            return DeltaTable(self.place(name), storage_options=None if self.s3 is None else self.s3.delta_options())
        except TableNotFoundError:
            return None

    def sink_options(self) -> tuple[str, ...]:
        """Return the options that name the table, as job, audit and maintenance take it."""
        if self.sink:
            return self.sink
        if self.iceberg is not None:
            catalog = self.iceberg.write_catalog()
            return ("--sink", ICEBERG, "--catalog", str(catalog), "--table", self.table_name)
        if self.postgres is None:
            return ("--table", self.place("events"))
        file = self.postgres.write_connection(self.folder / "connection")
        return ("--sink", POSTGRES, "--connection", str(file), "--table", self.table_name)

    def ids(self) -> list[str]:
        """Return the ids in the table, sorted as numbers."""
        return sorted((row["id"] for row in self.rows()), key=int)

    def receipts(self) -> list[TopicPartition]:
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        try:
            return [one for one in self.group_reader.committed(partitions, timeout=30) if one.offset >= 0]
        except KafkaException as error:
            if error.args[0].code() in _NO_COORDINATOR:
                return []
            raise

    def named(self) -> set[tuple[str, int]]:
        """Return table and first offset of the receipts."""
        said = [read_receipt(one) for one in self.receipts()]
        return {(receipt.table, receipt.first) for receipt in said if receipt is not None}

    def succeeded(self) -> set[str | None]:
        """Return the ids of the replaced tables that the receipts name."""
        said = [read_receipt(one) for one in self.receipts()]
        return {receipt.succeeds for receipt in said if receipt is not None}

    def receipted(self) -> int:
        """Count the records that the receipts cover."""
        both = [(one.offset, read_receipt(one)) for one in self.receipts()]
        return sum(offset - receipt.first for offset, receipt in both if receipt is not None)


def _select(postgres: Postgres, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(postgres.connection, row_factory=dict_row) as connection:
        try:
            return connection.execute(query.encode()).fetchall()
        except UndefinedTable:
            return []


def _rows(table: DeltaTable | None) -> list[dict[str, Any]]:
    if table is None:
        return []
    columns = ", ".join(
        f"CAST({field.name} AS TIMESTAMP) AS {field.name}" if "timestamp" in str(field.type) else field.name
        for field in table.schema().fields
    )
    found = []
    for batch in QueryBuilder().register("t", table).execute(f"SELECT {columns} FROM t"):
        names = batch.schema.names
        found += [
            dict(zip(names, row, strict=True))
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        ]
    return found
