"""Query the table, its quarantine and its readings in SQL.

    oncegate-cloud query --table ./events 'SELECT device, count(*) AS events FROM events GROUP BY device'

The statement may use `events`, the table; `quarantine`; `readings`, with one row for each measurement of an event:
fingerprint, device, type, time (the event's, or else that of its acceptance), event_time, clock, gateway, name, value
(text), unit;
`events_corrected`, the table with `received_corrected`, in which the errors of gateways' clocks are corrected;
`gateway_events`, what gateways have stated in events of their own; and `gateways`, with one row for each gateway.
The language is that of Spark SQL for a Delta or Iceberg table, and of PostgreSQL with `--sink postgres`; docs/table.md
has examples.
Only a query is accepted, and nothing is written: with PostgreSQL the transaction is read-only.

Exit status: 0 success; 1 a failure; 2 wrong usage.
"""

import argparse
import csv
import json
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, TextIO

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from cloud import command_line, sinks
from cloud.errors import JobError, StopError
from cloud.runtime import jvm
from cloud.runtime.outcome import printable
from cloud.session import session_if
from cloud.sinks import Tables
from cloud.table import views

logger = logging.getLogger("cloud.query")

_GATEWAY = re.compile(r"[A-Za-z0-9._-]+")
ROWS_MAX = 1000
"""The default limit of the rows that are printed."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The options of the command line."""

    tables: Tables
    statement: str
    form: str
    rows_max: int
    retired: Sequence[str] = ()
    """Gateways that the view `gateways` leaves out."""

    @property
    def needs_spark(self) -> bool:
        return not self.tables.kind.is_database


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer, with the names of their columns."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]


def main(arguments: Sequence[str]) -> int:
    """Run the statement, and print its rows."""
    settings = parse(arguments)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        with session_if(needed=settings.needs_spark) as spark:
            answer: Answer = resolve_name(settings.tables.kind.asks)(spark, settings)
    except JobError as error:
        print(f"oncegate-cloud query: {error}", file=sys.stderr)
        return 1
    cut = answer.rows[: settings.rows_max]
    FORMS[settings.form](answer.names, cut, sys.stdout)
    if len(answer.rows) > len(cut):
        print(f"oncegate-cloud query: only the first {len(cut)} rows; --rows N shows more", file=sys.stderr)
    return 0


def ask_spark(spark: SparkSession, settings: QuerySettings) -> Answer:
    """Run the statement as a subquery, which in SQL cannot be a command that writes."""
    try:
        frames = resolve_name(settings.tables.kind.frames)(spark, settings.tables)
        for name, frame in zip(("events", "quarantine"), frames, strict=True):
            frame.createOrReplaceTempView(name)
        for view in views.without(views.SPARK_VIEWS, settings.retired):
            spark.sql(view)
        statement = settings.statement.strip().removesuffix(";")
        found = spark.sql(f"SELECT * FROM (\n{statement}\n)").limit(settings.rows_max + 1)
        return Answer(found.columns, [tuple(row) for row in found.collect()])
    except ParseException as error:
        raise StopError(f"the statement is not a query that can be read: {jvm.cause(error)}") from error
    except (AnalysisException, *jvm.FAILURES) as error:
        raise StopError(jvm.cause(error)) from error


def ask_postgres(_: SparkSession | None, settings: QuerySettings) -> Answer:
    """Run the statement in PostgreSQL, in a transaction that cannot write."""
    from psycopg import sql

    from cloud.postgres.connection import connected, identifier, read_connection

    assert settings.tables.connection is not None
    with connected(read_connection(settings.tables.connection), autocommit=False) as opened:
        for name, table in (("events", settings.tables.table), ("quarantine", settings.tables.quarantine)):
            view = sql.SQL("CREATE TEMPORARY VIEW {} AS SELECT * FROM {}")
            opened.execute(view.format(sql.Identifier("pg_temp", name), identifier(table)))
        for statement in views.without(views.POSTGRES_VIEWS, settings.retired):
            opened.execute(statement.encode())
        opened.execute("SET TRANSACTION READ ONLY")
        # Prepared, it is one statement: another one before it could end the transaction.
        cursor = opened.execute(settings.statement.encode(), prepare=True)
        if cursor.description is None:
            raise StopError("the statement has no rows; only queries are allowed")
        answer = Answer([column.name for column in cursor.description], cursor.fetchmany(settings.rows_max + 1))
        opened.rollback()
    return answer


def write_table(names: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    """Write columns of text."""
    lines = [tuple(names), *(tuple(map(_cell, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), file=to)


def write_json(names: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    """Write one JSON object per row."""
    for row in rows:
        print(json.dumps(dict(zip(names, map(_plain, row), strict=True)), ensure_ascii=False), file=to)


def write_csv(names: Sequence[str], rows: Iterable[Sequence[object]], to: TextIO) -> None:
    """Write comma-separated values (RFC 4180) with a header."""
    writer = csv.writer(to)
    writer.writerow(names)
    writer.writerows([_plain(value) for value in row] for row in rows)


FORMS = {"table": write_table, "json": write_json, "csv": write_csv}


def parse(arguments: Sequence[str]) -> QuerySettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    return QuerySettings(sinks.read(options, given), given.statement, given.format, given.rows, given.retired)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_line.new_parser("query", __doc__)
    add = parser.add_argument
    add("statement", metavar="SQL", help="the query")
    sinks.add_options(parser)
    add("--format", choices=tuple(FORMS), default="table", help="form of the rows; default: %(default)s")
    limit = partial(command_line.number, most=1_000_000)
    add("--rows", type=limit, default=ROWS_MAX, metavar="N", help="largest number of rows; default: %(default)s")
    add(
        "--retired", type=_gateways, default=(), metavar="IDS", help="gateways to leave out of `gateways`, as gw-1,gw-2"
    )
    return parser


def _cell(value: object) -> str:
    """Return a value as printable text."""
    return printable(str(_plain(value)) if value is not None else "-")


def _plain(value: object) -> object:
    """Return a value that JSON has; binary columns as hex."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _gateways(text: str) -> Sequence[str]:
    names = text.split(",")
    if not all(map(_GATEWAY.fullmatch, names)):
        raise argparse.ArgumentTypeError(f"expected ids of gateways with commas between them; found {text!r}")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
