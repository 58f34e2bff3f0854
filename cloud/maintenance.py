"""Maintain a table: compact what the batches wrote, and remove files that are no longer needed.

    oncegate-cloud maintenance --table ./events
    oncegate-cloud maintenance --sink postgres --connection ./postgres --table events

It may run while the job runs; once a day is recommended. On S3, where Delta excludes
concurrent writers only within one process, it requires `--job-is-stopped`, or a log store that excludes them. A Delta
table and its quarantine are compacted (OPTIMIZE, within each day), and files that no commit of the last `--retain`
refers to are removed (VACUUM). In PostgreSQL, maintenance updates statistics, and the index on `received` for new
pages.

Exit status: 0 done; 1 a failure, which the log names; 2 wrong usage.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name

from pyspark.sql import SparkSession

from cloud import command_line, sinks
from cloud.delta.sink import QUARANTINE, TABLE
from cloud.delta.table import DeltaTable, excludes_writers
from cloud.errors import StopError
from cloud.iceberg import catalog
from cloud.iceberg.table import IcebergTable
from cloud.runtime.outcome import exit_status
from cloud.session import session_if
from cloud.settings import seconds
from cloud.sinks import Tables
from cloud.table.lake_table import LakeTable

logger = logging.getLogger("cloud.maintenance")

DAY_SECONDS = 86_400
RETAIN_SECONDS_MIN = 7 * DAY_SECONDS
"""Delta's own minimum, since another program may still be reading older files."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """The options of the command line."""

    tables: Tables
    retain_seconds: int
    job_is_stopped: bool

    @property
    def needs_spark(self) -> bool:
        return not self.tables.kind.is_database


def main(arguments: Sequence[str]) -> int:
    """Run maintenance once; return the exit status."""
    return exit_status(partial(_run, parse(arguments)), logger)


def _run(settings: MaintenanceSettings) -> int:
    with session_if(needed=settings.needs_spark) as spark:
        resolve_name(settings.tables.kind.maintains)(spark, settings)
    return 0


def maintain_delta(spark: SparkSession, settings: MaintenanceSettings) -> None:
    """Maintain both folders; raise StopError where the job could write to them at the same time and be overwritten."""
    for path, layout in zip(settings.tables.folders, (TABLE, QUARANTINE), strict=True):
        if not (settings.job_is_stopped or excludes_writers(spark, path)):
            raise StopError(
                f"{path}: Delta excludes concurrent writers there only within one process, and a commit of the job "
                "could be replaced. Stop the job and add --job-is-stopped, or set spark.delta.logStore.<scheme>.impl "
                "to a log store that excludes them, here and for the job"
            )
        if not DeltaTable.exists(spark, path):
            raise StopError(f"{path}: there is no Delta table")
        _maintain(DeltaTable(spark, path, layout), settings)


def maintain_iceberg(spark: SparkSession, settings: MaintenanceSettings) -> None:
    """Compact both tables, and remove the files that no snapshot has."""
    for name in catalog.connect(spark, settings.tables):
        _maintain(IcebergTable(spark, name), settings)


def _maintain(table: LakeTable, settings: MaintenanceSettings) -> None:
    """Compact and vacuum, which writes commits of its own."""
    removed, added = table.compact()
    logger.info("table=%s stage=compacted files_compacted=%d into=%d", table.name, removed, added)
    table.vacuum(settings.retain_seconds)
    logger.info("table=%s stage=vacuumed retain_days=%d", table.name, settings.retain_seconds // DAY_SECONDS)


def maintain_postgres(_: SparkSession | None, settings: MaintenanceSettings) -> None:
    """Vacuum the tables with statistics, which extends the index on `received` to new pages."""
    from cloud.postgres.connection import connected, identifier, read_connection  # psycopg is needed for this alone

    tables = settings.tables
    assert tables.connection is not None
    with connected(read_connection(tables.connection)) as opened:
        for name in (tables.table, tables.quarantine):
            opened.execute(f"VACUUM (ANALYZE) {identifier(name).as_string(opened)}".encode())
            logger.info("table=%s stage=vacuumed", name)


def parse(arguments: Sequence[str]) -> MaintenanceSettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    tables = sinks.read(options, given)
    if given.retain < RETAIN_SECONDS_MIN:
        options.error("argument --retain: at least 7d, since readers may still need older files")
    return MaintenanceSettings(tables, given.retain, given.job_is_stopped)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_line.new_parser("maintenance", __doc__)
    add = parser.add_argument
    sinks.add_options(parser)
    add(
        "--retain",
        type=seconds,
        default="7d",
        metavar="TIME",
        help="age of removed files; default and minimum: %(default)s",
    )
    add("--job-is-stopped", action="store_true", help="state that no job writes to the table; needed on S3 only")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
