"""The sinks: one description for each, from which all else that differs between them is derived.

An entry point of the group `oncegate.sinks` names each that another package has; `--sink NAME` selects it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from cloud import command_line

GROUP: Final = "oncegate.sinks"
_TABLE_NAME = re.compile(r"([a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}")
_IN_NAMESPACE = re.compile(r"[a-z_][a-z0-9_]{0,39}\.[a-z_][a-z0-9_]{0,79}")


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of table. Its functions are named `module:function`: what they import is needed for this kind alone."""

    name: str
    """The name of its entry point, and of `--sink`."""
    opens: str
    """Returns a `cloud.table.sink.Sink`, given Spark, `Tables`, devices, and the gateways' retention in seconds.

    Where `is_processing`, given `transform`, a `cloud.table.transform.Transform` or None, and `keeps_new`, whether it
    is to be a `cloud.table.sink.EffectsSink`.
    """
    identifies: str
    """Returns the id of the table, by which receipts name it, given Spark (None for a database) and the tables."""
    maintains: str
    """Compacts the tables, given Spark (None for a database) and `cloud.maintenance.MaintenanceSettings`."""
    frames: str
    """Returns the present rows of table and quarantine as Spark's frames, given Spark and the tables.

    The audit reads them, and so does the default of `asks`.
    """
    asks: str = "cloud.query:ask_spark"
    """Returns the `cloud.query.Answer` to a statement, given Spark (None for a database) and `QuerySettings`."""
    dialect: str = "cloud.tracing.table:SPARK"
    """The `cloud.tracing.table.Dialect` of these statements."""
    is_database: bool = False
    """Whether `--connection` leads to the tables. It flushes, and is asked without Spark."""
    is_catalog: bool = False
    """Whether `--catalog` leads to the tables, which Spark reads.

    Tables of a database or a catalog have names. Otherwise they are folders that Spark reads.
    """
    is_processing: bool = False
    """Whether it takes the user's own processing."""


DELTA: Final = SinkKind(
    "delta",
    opens="cloud.delta.sink:open_tables",
    identifies="cloud.auditing.table:id_of_delta",
    maintains="cloud.maintenance:maintain_delta",
    frames="cloud.auditing.table:frames_of_delta",
    is_processing=True,
)
POSTGRES: Final = SinkKind(
    "postgres",
    opens="cloud.postgres.sink:open_tables",
    identifies="cloud.auditing.table:id_of_postgres",
    maintains="cloud.maintenance:maintain_postgres",
    frames="cloud.auditing.table:frames_of_postgres",
    asks="cloud.query:ask_postgres",
    dialect="cloud.tracing.table:POSTGRES",
    is_database=True,
    is_processing=True,
)
ICEBERG: Final = SinkKind(
    "iceberg",
    opens="cloud.iceberg.table:open_tables",
    identifies="cloud.iceberg.catalog:identify",
    maintains="cloud.maintenance:maintain_iceberg",
    frames="cloud.iceberg.catalog:frames",
    is_catalog=True,
    is_processing=True,
)
OWN: Final = {kind.name: kind for kind in (DELTA, POSTGRES, ICEBERG)}
"""The job's own; a driver in a cluster has the archive of the packages alone, without their entry points."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A table and its quarantine: folders, or names in a database or a catalog."""

    kind: SinkKind
    table: str
    quarantine: str
    connection: Path | None = None
    """The file that leads to a database or a catalog; None for folders."""
    change_feed_seconds: int | None = None
    """How far back readers of a Delta table's change feed may be; None for none."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders; none where the tables have names."""
        return (self.table, self.quarantine) if self.connection is None else ()

    def qualified(self, qualify: Callable[[str], str]) -> Tables:
        """Return the tables with full paths of folders."""
        if self.connection is not None:
            return self
        return replace(self, table=qualify(self.table), quarantine=qualify(self.quarantine))


def find(name: str) -> SinkKind:
    """Return a sink by its name; raise ArgumentTypeError where it is missing or invalid."""
    if name in OWN:
        return OWN[name]
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise argparse.ArgumentTypeError(f"no such sink is installed; there are: {', '.join([*OWN, *found.names])}")
    try:
        kind = found[name].load()
    except Exception as error:  # of another package's code
        raise argparse.ArgumentTypeError(f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, SinkKind) or kind.name != name:
        raise argparse.ArgumentTypeError(f"{found[name].value} is no cloud.sinks.SinkKind of this name")
    return kind


def add_options(parser: argparse.ArgumentParser, table_help: str = "") -> None:
    """Add the options; `table_help` is appended to the help of the table."""
    add = parser.add_argument
    add(
        "--sink",
        type=find,
        default=DELTA.name,
        metavar="|".join(OWN),
        help="where the table is, or the name of another package's sink; default: %(default)s",
    )
    add("--table", required=True, metavar="PATH", help=f"folder of the Delta table, or the table's name{table_help}")
    add("--quarantine", metavar="PATH", help="folder or table of the quarantine; default: <table>_quarantine")
    add(
        "--connection",
        type=command_line.secret_path,
        metavar="FILE",
        help="file with libpq's connection string, which only its owner may read; the password there or in pgpass",
    )
    add(
        "--catalog",
        type=command_line.secret_path,
        metavar="FILE",
        help="file with NAME=VALUE lines of the Iceberg catalog, such as type=rest and uri=https://…, which only "
        "its owner may read",
    )


def read(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Tables:
    """Return the tables of the arguments; wrong usage ends the process with status 2 and a message."""
    kind: SinkKind = given.sink
    for option, is_its in (("connection", kind.is_database), ("catalog", kind.is_catalog)):
        if is_its and getattr(given, option) is None:
            parser.error(f"--sink {kind.name} requires --{option} FILE")
        if not is_its and getattr(given, option) is not None:
            parser.error(f"--{option} FILE is not for --sink {kind.name}: see --sink")
    if kind.is_database or kind.is_catalog:
        try:
            table_name(given.table)
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument --table: {error}")
    for option in ("table", "quarantine") if kind.is_catalog else ():  # they become parts of statements
        if _IN_NAMESPACE.fullmatch(name := getattr(given, option) or given.table) is None:
            parser.error(f"argument --{option}: {name!r} is not a name in a namespace such as plant.events")
    table = given.table.rstrip("/")
    quarantine = (given.quarantine or f"{table}_quarantine").rstrip("/")
    if quarantine == table:
        parser.error("argument --quarantine: must differ from --table")
    return Tables(kind, table, quarantine, given.connection or given.catalog)


def is_within(inner: str, outer: str) -> bool:
    """Whether a folder is another one or within it; both as absolute paths or with their schemes."""
    return f"{inner}/".startswith(f"{outer}/")


def table_name(text: str) -> str:
    """Return the name of a table in a database, checked."""
    if _TABLE_NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a table name such as events or plant.events")
    return text
