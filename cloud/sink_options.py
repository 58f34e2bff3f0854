"""The options of the command line that name a table, its quarantine and its sink."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from cloud import kafka_options

DELTA, POSTGRES = "delta", "postgres"

_TABLE_NAME = re.compile(r"([a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A table and its quarantine; folders of Delta tables, or tables of PostgreSQL."""

    table: str
    quarantine: str
    connection: Path | None
    """File with PostgreSQL's connection string; None for a Delta table."""


def add_options(parser: argparse.ArgumentParser, table_help: str = "") -> None:
    """Add the options; `table_help` is appended to the help of the table."""
    add = parser.add_argument
    add("--sink", choices=(DELTA, POSTGRES), default=DELTA, help="where the table is; default: %(default)s")
    add("--table", required=True, metavar="PATH", help=f"folder of the Delta table, or PostgreSQL table{table_help}")
    add("--quarantine", metavar="PATH", help="folder or table of the quarantine; default: <table>_quarantine")
    add(
        "--connection",
        type=kafka_options.secret_path,
        metavar="FILE",
        help="file with libpq's connection string, which only its owner may read; the password there or in pgpass",
    )


def read(parser: argparse.ArgumentParser, given: argparse.Namespace) -> SinkOptions:
    """Return the options from the arguments; wrong usage ends the process with status 2 and a message."""
    if (given.sink == POSTGRES) != (given.connection is not None):
        parser.error("--connection FILE and --sink postgres require each other")
    if given.sink == POSTGRES:
        try:
            table_name(given.table)
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument --table: {error}")
    table = given.table.rstrip("/")
    quarantine = (given.quarantine or f"{table}_quarantine").rstrip("/")
    if quarantine == table:
        parser.error("argument --quarantine: must differ from --table")
    return SinkOptions(table, quarantine, given.connection)


def is_within(inner: str, outer: str) -> bool:
    """Whether a folder is another one or within it; both as absolute paths or with their schemes."""
    return f"{inner}/".startswith(f"{outer}/")


def table_name(text: str) -> str:
    """Return the name of a PostgreSQL table, checked."""
    if _TABLE_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a table name such as events or plant.events")
    return text
