"""A sink of Oncegate: tables in a DuckDB database.

    oncegate-cloud job --sink duckdb --connection ./plant.duckdb --table events --checkpoint ./checkpoint ...

`oncegate` is on no index, where anybody could register that name: first `pip install '.[cloud]'` in the checkout, then
`pip install docs/examples/oncegate-duckdb`.

`--connection` is the database's file, which is created if absent. Spark writes each batch into a folder beside it, and
one transaction of DuckDB takes it from there: rows, quarantine and offsets, or nothing. So the job runs on one machine
(`--master local`). The key on the fingerprint excludes duplicates of any age.

DuckDB lets one process write at a time, and nobody read meanwhile. The job has the file open for its transactions
alone; who keeps it open for longer than WAIT_SECONDS ends the job. `oncegate-cloud query` has `events`, `quarantine`
and `readings`; the other views are in docs/examples/views-duckdb.sql.
"""

import atexit
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from cloud.errors import StopError
from cloud.maintenance import MaintenanceSettings
from cloud.query import Answer, QuerySettings
from cloud.sinks import SinkKind, Tables
from cloud.table import rows
from cloud.table.commits import BATCH_BITS, Commit, parse, to_json
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon, is_fresh
from cloud.table.layout import Reason
from cloud.table.sink import Written
from cloud.tracing.table import Dialect

WAIT_SECONDS = 60.0
DIALECT = Dialect(
    binary="unhex('{}')",
    text="decode(unhex('{}'))",
    hex="lower(hex({}))",
    milliseconds="epoch_ms({})",
    moment="to_timestamp({} / 1000.0)",
    contains="contains({}::VARCHAR, ({})::VARCHAR)",
)
DUCKDB = SinkKind(
    "duckdb",
    opens="oncegate_duckdb:DuckDbSink",
    identifies="oncegate_duckdb:identify",
    maintains="oncegate_duckdb:maintain",
    frames="oncegate_duckdb:frames",
    asks="oncegate_duckdb:ask",
    dialect="oncegate_duckdb:DIALECT",
    is_database=True,
)

_TYPES = {"binary": "BLOB", "string": "VARCHAR", "timestamp": "TIMESTAMPTZ"}
_COLUMNS = ", ".join(
    f"{name} {_TYPES.get(kind.simpleString(), kind.simpleString())}" for name, kind in rows.COLUMNS.items()
)
_NAMES = ", ".join(rows.COLUMNS)
_BESIDE = ("reason", "shared", "fresh", "kafka_key", "headers", "value")
"""What is staged of each record beside its row."""
_ACCEPTED = "coalesce(least(CASE {0}.clock WHEN 'trusted' THEN {0}.received END, {0}.appended), {0}.received)"
# Of equal fingerprints in a batch the first accepted one is the row.
_INSERT = f"""
    INSERT INTO {{table}} ({_NAMES}) SELECT {_NAMES} FROM staged s WHERE reason IS NULL
    QUALIFY row_number() OVER (PARTITION BY fingerprint ORDER BY {_ACCEPTED.format("s")}, epoch, sequence) = 1
    ON CONFLICT DO NOTHING
"""
_QUARANTINED = """
    topic_id VARCHAR, topic VARCHAR, kafka_partition INTEGER, kafka_offset BIGINT, reason VARCHAR, kafka_key BLOB,
    value BLOB, headers STRUCT("key" VARCHAR, "value" BLOB)[], appended TIMESTAMPTZ, quarantined_at TIMESTAMPTZ
"""
# The table has the first of two events with one id, so that others of the same batch are compared with it, too.
_QUARANTINE = f"""
    INSERT INTO {{quarantine}}
    SELECT $topic_id, $topic, s.kafka_partition, s.kafka_offset, coalesce(s.reason, '{Reason.ID_REUSED}'), s.kafka_key,
           s.value, s.headers, s.appended, s.processed_at
    FROM staged s LEFT JOIN {{table}} t ON s.fingerprint = t.fingerprint AND s.reason IS NULL
    WHERE s.reason IS NOT NULL
       OR s.shared = 'none' AND (s.epoch, s.sequence) <> (t.epoch, t.sequence)
          AND abs(epoch({_ACCEPTED.format("s")}) - epoch({_ACCEPTED.format("t")})) > $retention
"""
_READINGS = """
    CREATE TEMP VIEW readings AS
    SELECT fingerprint, device, type, time, event_time, clock, gateway, name,
           json_extract_string(data, pointer) AS value, json_extract_string(units, pointer) AS unit
    FROM (SELECT *, '/' || replace(replace(name, '~', '~0'), '/', '~1') AS pointer
          FROM (SELECT *, coalesce(event_time, received) AS time, unnest(json_keys(data)) AS name FROM events))
"""


class DuckDbSink:
    """A `cloud.table.sink.Sink` of three tables: events, quarantine, and the owner's row with the offsets."""

    def __init__(self, spark: SparkSession, tables: Tables, devices: Devices, retention_seconds: int) -> None:
        if not str(spark.sparkContext.master).startswith("local"):
            raise StopError("DuckDB is a file of one machine: start the job with --master local[*]")
        self._tables = tables
        self._devices = devices
        self._retention_seconds = retention_seconds
        path = path_of(tables).absolute()
        for left in path.parent.glob(f".{path.name}-*"):  # of a job that was killed
            shutil.rmtree(left)
        # Receipts are repeated beside a batch, and DuckDB opens a file only once in a process.
        self._lock = threading.Lock()
        with self._transaction() as database:
            self._id = self._create(database)
        last = self.last_commit()
        self._known = None if last is None else last.version

    @property
    def id(self) -> str:
        return self._id

    @property
    def folders(self) -> tuple[str, ...]:
        return ()

    def last_commit(self) -> Commit | None:
        with self._lock, opened(self._tables, read_only=True) as database:
            return self._last(database)

    def last_claim(self) -> int:
        return 0 if self._known is None else self._known >> BATCH_BITS

    def check(self) -> None:
        """Raise StopError where the table is another one, or has lost commits; DuckDB tells of no deleted rows."""
        known = self._known  # before the last commit, which a batch may be making
        last = self.last_commit()
        if known is not None and (last is None or last.version < known):
            raise StopError(f"table {self._tables.table}: it has lost commits: start with a new checkpoint")

    def claim(self, commit: Commit) -> None:
        with self._transaction() as database:
            last = self._last(database)
            if last is not None and last.version >= commit.version:
                raise self._changed()
            self._own(database, commit)
        self._known = commit.version

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        judged = survivors.withColumn("fresh", is_fresh(horizon))
        path = path_of(self._tables).absolute()
        beside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            frame = rows.decode(judged, self._devices.frame(), _BESIDE)
            frame.write.mode("overwrite").parquet(f"file://{beside}")
            with self._transaction() as database:
                last = self._last(database)
                if last is None or last.version != self._known:
                    raise self._changed()
                written = self._take(database, beside, commit)
                self._own(database, commit)
        finally:
            shutil.rmtree(beside)
        self._known = commit.version
        return written

    def _take(self, database: duckdb.DuckDBPyConnection, staged: Path, commit: Commit) -> Written:
        database.execute(f"CREATE TEMP TABLE staged AS FROM read_parquet('{staged}/*.parquet')")
        counts = "count(reason), count(*) - count(reason), count(*) FILTER (reason IS NULL AND NOT fresh)"
        [(bad, good, late)] = database.execute(f"SELECT {counts} FROM staged").fetchall()
        named = {"table": self._tables.table, "quarantine": self._tables.quarantine}
        of = {"topic_id": commit.topic_id, "topic": commit.topic, "retention": self._retention_seconds}
        [(new,)] = database.execute(_INSERT.format(**named)).fetchall()
        [(set_aside,)] = database.execute(_QUARANTINE.format(**named), of).fetchall()
        return Written(new, late, set_aside, good + bad - new - set_aside)

    def _create(self, database: duckdb.DuckDBPyConnection) -> str:
        """Create the tables that are absent; return the id of the events' table, its comment."""
        table, quarantine = self._tables.table, self._tables.quarantine
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({_COLUMNS}, PRIMARY KEY (fingerprint))")
        database.execute(f"CREATE TABLE IF NOT EXISTS {quarantine} ({_QUARANTINED})")
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {table}_owner (id VARCHAR, version BIGINT NOT NULL, metadata VARCHAR NOT NULL)"
        )
        found = database.execute(f"SELECT count(*), max(received) FROM {table}").fetchall()
        comment = comment_of(database, self._tables.table)
        if comment is None and found[0][0] == 0:
            database.execute(f"COMMENT ON TABLE {table} IS 'oncegate:{uuid.uuid4()}'")
            comment = comment_of(database, self._tables.table)
        if comment is None or not comment.startswith("oncegate:"):
            raise StopError(f"table {table}: it is not of this job (its comment is {comment!r}): use another")
        return comment.removeprefix("oncegate:")

    def _last(self, database: duckdb.DuckDBPyConnection) -> Commit | None:
        if comment_of(database, self._tables.table) != f"oncegate:{self._id}":
            raise StopError(f"table {self._tables.table}: it was dropped and recreated while the job ran")
        found = database.execute(f"SELECT metadata FROM {self._tables.table}_owner WHERE id = $1", [self._id])
        row = found.fetchone()
        return None if row is None else parse(row[0])

    def _own(self, database: duckdb.DuckDBPyConnection, commit: Commit) -> None:
        owner, values = f"{self._tables.table}_owner", [self._id, commit.version, to_json(commit)]
        database.execute(f"DELETE FROM {owner} WHERE id = $1", [self._id])
        database.execute(f"INSERT INTO {owner} VALUES ($1, $2, $3)", values)

    def _changed(self) -> StopError:
        return StopError(f"table {self._tables.table}: another job has claimed it since; this job ends for good")

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock, opened(self._tables) as database:
            database.execute("BEGIN")
            yield database
            database.execute("COMMIT")  # which DuckDB flushes to disk; without it, closing rolls back


def comment_of(database: duckdb.DuckDBPyConnection, table: str) -> str | None:
    """Return a table's comment, which has its id."""
    schema, _, name = table.rpartition(".")
    found = database.execute(
        "SELECT comment FROM duckdb_tables() WHERE schema_name = $1 AND table_name = $2", [schema or "main", name]
    ).fetchone()
    return None if found is None else found[0]


def identify(_: SparkSession | None, tables: Tables) -> str:
    """Return the id by which receipts name the table."""
    with opened(tables, read_only=True) as database:
        return str(comment_of(database, tables.table)).removeprefix("oncegate:")


def path_of(tables: Tables) -> Path:
    """Return the database's file."""
    assert tables.connection is not None
    return tables.connection


@contextmanager
def opened(tables: Tables, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the database once no other process has it; raise StopError after WAIT_SECONDS."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            database = duckdb.connect(path_of(tables), read_only=read_only)
            break
        except duckdb.IOException as error:
            if "lock" not in str(error) or time.monotonic() > end:
                raise StopError(f"{path_of(tables)}: {error}") from error
            time.sleep(0.1)
    with database:
        database.execute("SET TimeZone = 'UTC'")
        yield database


def frames(spark: SparkSession, tables: Tables) -> list[DataFrame]:
    """Return both tables for the audit: as Parquet, which Spark reads until it ends."""
    folder = Path(tempfile.mkdtemp(prefix="oncegate-audit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    names = (tables.table, tables.quarantine)
    with opened(tables, read_only=True) as database:
        for name in names:
            database.execute(f"COPY {name} TO '{folder / name}.parquet'")
    return [spark.read.parquet(f"file://{folder / name}.parquet") for name in names]


def ask(_: SparkSession | None, settings: QuerySettings) -> Answer:
    """Run one query; the database is opened for reading alone."""
    tables = settings.tables
    with opened(tables, read_only=True) as database:
        for name, table in (("events", tables.table), ("quarantine", tables.quarantine)):
            [(catalog,)] = database.execute("SELECT current_database()").fetchall()
            schema = "" if "." in table else "main."
            database.execute(f'CREATE TEMP VIEW {name} AS FROM "{catalog}".{schema}{table}')
        database.execute(_READINGS)
        database.execute("SET enable_external_access = false")
        try:
            if [one.type for one in database.extract_statements(settings.statement)] != [duckdb.StatementType.SELECT]:
                raise StopError("only one query is allowed")
            found = database.execute(settings.statement)
            answer = Answer([column[0] for column in found.description or ()], found.fetchmany(settings.rows_max + 1))
        except duckdb.Error as error:
            raise StopError(str(error).partition("\n")[0]) from error
    return answer


def maintain(_: SparkSession | None, settings: MaintenanceSettings) -> None:
    """Write what the log has into the database's file."""
    with opened(settings.tables) as database:
        database.execute("CHECKPOINT")
