"""Reads what a consumer has written, by the user's own query: PostgreSQL, SQLite, DuckDB, Delta tables, JSON lines."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from simulators.errors import SimulatorError

TABLE = "result"
"""The name by which a query calls JSON lines, or a Delta table that is named itself."""
FORMS = "postgresql://…, sqlite:FILE, duckdb:FILE, delta:FOLDER or jsonl:FILE"
_CONNECT_SECONDS_MAX = 5
_LOCKED_SECONDS_MAX = 5.0
_FINGERPRINT, _PARTITION, _OFFSET = "fingerprint", "kafka_partition", "kafka_offset"

Table = tuple[Sequence[str], Iterable[Sequence[object]]]
"""The names of the columns, and the rows."""


class ResultError(SimulatorError):
    """The result could not be read by the query; the message says why."""


class QueryError(ResultError):
    """The query is wrong: it fails again."""


class AbsentError(ResultError):
    """There is no such table or file: the consumer may not have made it yet."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the result has."""

    fingerprints: Counter[str] = field(default_factory=Counter)
    refused: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset of each record that the consumer has refused and recorded."""
    names_refused: bool = False
    """Whether the query tells of refused records at all."""


@dataclass(frozen=True, slots=True)
class Result:
    """Where the consumer writes, and the query for it; `{topic}` in both is the topic's name."""

    url: str
    query: str

    def __post_init__(self) -> None:
        """Raise ResultError where the URL has no known form."""
        if self._kind not in _READERS or not self._place:
            raise ResultError(f"--result {self.url}: expected {FORMS}")

    @property
    def needs_pause(self) -> bool:
        """Whether it can be read only while nothing writes: DuckDB's file is locked, and read from a copy."""
        return self._kind == "duckdb"

    def read(self, topic: str) -> Found:
        """Return what the result has now; raise ResultError, or AbsentError where there is no table yet."""
        query = self.query.replace("{topic}", topic)
        place = self._place.replace("{topic}", topic)
        if self._kind != "postgresql" and not Path(place).exists():
            raise AbsentError(f"--result: {place} does not exist")
        return _found(*_READERS[self._kind](place, query))

    @property
    def _kind(self) -> str:
        return self.url.partition(":")[0]

    @property
    def _place(self) -> str:
        """The file or folder; libpq reads its URL itself."""
        return self.url if self._kind == "postgresql" else self.url.partition(":")[2].removeprefix("//")


def _found(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Found:
    """Return the rows as fingerprints and refused places; raise ResultError where a column is missing."""
    at = {name.lower(): number for number, name in enumerate(columns)}
    if _FINGERPRINT not in at:
        raise QueryError(f"--query: it has the columns {', '.join(columns)}, and none is named {_FINGERPRINT}")
    if (_PARTITION in at) != (_OFFSET in at):
        raise QueryError(f"--query: {_PARTITION} and {_OFFSET} belong together")
    names_refused = _PARTITION in at
    fingerprints: Counter[str] = Counter()
    refused = set()
    for row in rows:
        if row[at[_FINGERPRINT]] is not None:
            fingerprints[_text(row[at[_FINGERPRINT]])] += 1
        elif names_refused and row[at[_OFFSET]] is not None:
            refused.add((int(str(row[at[_PARTITION]])), int(str(row[at[_OFFSET]]))))
    return Found(fingerprints, frozenset(refused), names_refused)


def _text(fingerprint: object) -> str:
    """Return a fingerprint as in `ce_id`: 32 hexadecimal digits, also where the column has its 16 bytes."""
    if isinstance(fingerprint, bytes | bytearray | memoryview):
        raw = bytes(fingerprint)
        return raw.hex() if len(raw) == 16 else raw.decode(errors="replace").lower()  # its bytes
    return str(fingerprint).replace("-", "").removeprefix("\\x").lower()  # also a UUID, or a bytea as text


def _read_postgresql(url: str, query: str) -> Table:
    import psycopg
    from psycopg.errors import UndefinedTable

    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_SECONDS_MAX) as connection:
            connection.read_only = True
            cursor = connection.execute(query.encode())
            rows = cursor.fetchall() if cursor.description else []
            return [column.name for column in cursor.description or ()], rows
    except UndefinedTable as error:
        raise AbsentError(f"--query: {error}") from error
    except psycopg.ProgrammingError as error:
        raise QueryError(f"--query: {error}") from error
    except psycopg.Error as error:
        raise ResultError(f"--result: {error}") from error


def _read_sqlite(file: str, query: str) -> Table:
    # Not mode=ro, which cannot roll back what a killed consumer has left in the journal.
    with closing(sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=rw", _LOCKED_SECONDS_MAX, uri=True)) as opened:
        return _ask_sqlite(opened, query)


def _ask_sqlite(opened: sqlite3.Connection, query: str) -> Table:
    try:
        opened.execute("PRAGMA query_only = 1")
        cursor = opened.execute(query)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()
    except sqlite3.Error as error:
        text = str(error)
        kind = AbsentError if "no such table" in text else ResultError if "locked" in text else QueryError
        raise kind(f"--query: {text}") from error


def _read_duckdb(file: str, query: str) -> Table:
    import duckdb

    with TemporaryDirectory(prefix="oncegate-certify-") as folder:
        copy = shutil.copy(file, folder)
        if (log := Path(f"{file}.wal")).exists():
            shutil.copy(log, folder)
        try:
            with closing(duckdb.connect(copy)) as opened:
                cursor = opened.execute(query)
                return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except duckdb.CatalogException as error:
            raise AbsentError(f"--query: {error}") from error
        except duckdb.ProgrammingError as error:
            raise QueryError(f"--query: {error}") from error
        except duckdb.Error as error:
            raise ResultError(f"--result: {error}") from error


def _read_delta(folder: str, query: str) -> Table:
    """Read a Delta table as `result`, or each one in a folder under its name."""
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    tables = {TABLE: Path(folder)} if (Path(folder) / "_delta_log").exists() else {}
    tables |= {log.parent.name: log.parent for log in Path(folder).glob("*/_delta_log")}
    if not tables:
        raise AbsentError(f"--result: {folder} is no Delta table, and has none")
    try:
        asked = QueryBuilder()
        for name, table in tables.items():
            asked.register(name, DeltaTable(table))
        found = asked.execute(query).read_all()
    except (DeltaError, OSError) as error:
        text = str(error)
        is_wrong = text.startswith(("Schema error", "SQL error", "Error during planning"))
        kind = AbsentError if "table" in text and "not found" in text else QueryError if is_wrong else ResultError
        raise kind(f"--query: {text}") from error
    return found.column_names, list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _read_lines(file: str, query: str) -> Table:
    """Read JSON objects, one a line, as the table `result`; a line without its end is still being written."""
    lines = Path(file).read_bytes().splitlines(keepends=True)
    try:
        objects = [json.loads(line) for line in lines if line.strip() and line.endswith(b"\n")]
    except ValueError as error:
        raise ResultError(f"--result: {file}: a line is no JSON: {error}") from error
    if not objects or not all(isinstance(one, Mapping) for one in objects):
        raise AbsentError(f"--result: {file} has no JSON objects")
    columns = list(dict.fromkeys(name for one in objects for name in one))
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.execute(f"CREATE TABLE {TABLE} ({names})")
        marks = ", ".join("?" * len(columns))
        rows = ([_plain(one.get(name)) for name in columns] for one in objects)
        opened.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows)  # a constant name
        return _ask_sqlite(opened, query)


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value


_READERS: Mapping[str, Callable[[str, str], Table]] = {
    "postgresql": _read_postgresql,
    "sqlite": _read_sqlite,
    "duckdb": _read_duckdb,
    "delta": _read_delta,
    "jsonl": _read_lines,
}
