r"""Keep a table fast and small: compact what the batches wrote, and remove files that nothing needs any more.

    spark-submit … cloud/maintenance.py --table ./events
    spark-submit … cloud/maintenance.py --sink postgres --connection ./postgres --table events

with the packages of cloud/job.py, while the job runs or not; once a day is a good pace. On S3, where Delta excludes
two writers only within one process, it takes `--job-is-stopped`, or a log store that excludes them. A Delta table and
its quarantine are compacted (OPTIMIZE, within each day), and files that no commit of the last `--retain` refers to are
removed (VACUUM). Delta's log forgets commits after 6 hours, and the job reads its offsets from its last one: where that
is old, since the job has been idle or stopped, it is written once more, without rows. In PostgreSQL, what the server's
own vacuum leaves is done: statistics, and the index on `received` over new pages.

Exit status: 0 done; 1 a failure, which the log names; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from cloud.delta.sink import QUARANTINE, TABLE
from cloud.delta.table import DeltaTable, excludes_writers
from cloud.errors import JobError, StopError
from cloud.session import open_session
from cloud.settings import DELTA, POSTGRES, seconds

logger = logging.getLogger("cloud.maintenance")

DAY_SECONDS = 86_400
RETAIN_SECONDS_MIN = 7 * DAY_SECONDS
"""What Delta itself asks for: somebody may still be reading older files."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """Everything that the command line says."""

    sink: str
    table: str
    quarantine: str
    connection: Path | None
    retain_seconds: int
    keep_after_seconds: int
    job_is_stopped: bool


def main(arguments: Sequence[str]) -> int:
    """Do it once."""
    settings = parse(arguments)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        if settings.connection is not None:
            maintain_postgres(settings, settings.connection)
        else:
            maintain_delta(settings)
    except JobError as error:
        logger.error("%s", error)
        return 1
    return 0


def maintain_delta(settings: MaintenanceSettings) -> None:
    """Open a session for it."""
    spark = open_session()
    try:
        maintain_folders(spark, settings)
    finally:
        spark.stop()


def maintain_folders(spark: SparkSession, settings: MaintenanceSettings) -> None:
    """Open the folders and maintain them."""
    for path, layout in ((settings.table, TABLE), (settings.quarantine, QUARANTINE)):
        if not (settings.job_is_stopped or excludes_writers(spark, path)):
            raise StopError(
                f"{path}: Delta excludes two writers there only within one process, and a commit of the job could be "
                "replaced. Stop the job and say --job-is-stopped, or set a log store that excludes them by "
                "spark.delta.logStore.<scheme>.impl, here and for the job"
            )
        if not DeltaTable.exists(spark, path):
            raise StopError(f"{path}: there is no Delta table")
        maintain(DeltaTable(spark, path, layout), settings)


def maintain(table: DeltaTable, settings: MaintenanceSettings) -> None:
    """Keep the last commit findable first: what follows writes commits of its own."""
    if table.keep_last_commit(settings.keep_after_seconds):
        logger.info("table=%s the job's last commit was old, and has been written once more", table.path)
    removed, added = table.compact()
    logger.info("table=%s files_compacted=%d into=%d", table.path, removed, added)
    table.vacuum(settings.retain_seconds)
    logger.info("table=%s files older than %d days removed", table.path, settings.retain_seconds // DAY_SECONDS)


def maintain_postgres(settings: MaintenanceSettings, connection: Path) -> None:
    """Do what the server's own vacuum leaves."""
    from cloud.postgres.connection import connected, identifier, read_connection  # psycopg is needed for this alone

    with connected(read_connection(connection)) as opened:
        for name in (settings.table, settings.quarantine):
            opened.execute(f"VACUUM (ANALYZE) {identifier(name).as_string(opened)}".encode())
            logger.info("table=%s vacuumed", name)
        index = identifier(settings.table, "_received").as_string(opened)
        opened.execute("SELECT brin_summarize_new_values(%s::regclass)", (index,))


def parse(arguments: Sequence[str]) -> MaintenanceSettings:
    """Read the arguments; wrong usage ends the process with status 2 and says why."""
    parser = argparse.ArgumentParser(
        prog="maintenance.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sink", choices=(DELTA, POSTGRES), default=DELTA, help="where the table is; default: %(default)s")
    add("--table", required=True, metavar="PATH", help="folder of the Delta table, or PostgreSQL table")
    add("--quarantine", metavar="PATH", help="default: <table>_quarantine")
    add("--connection", type=Path, metavar="FILE", help="libpq's connection string, for --sink postgres")
    add("--retain", type=seconds, default="7d", metavar="TIME", help="at least, and by default: %(default)s")
    add("--keep-after", type=seconds, default="1h", metavar="TIME", help="age at which a commit is written once more")
    add("--job-is-stopped", action="store_true", help="nobody else writes to the table meanwhile; needed on S3 alone")
    given = parser.parse_args(arguments)
    if (given.sink == POSTGRES) != (given.connection is not None):
        parser.error("--connection FILE goes with --sink postgres, and --sink postgres with it")
    if given.retain < RETAIN_SECONDS_MIN:
        parser.error("argument --retain: somebody may be reading older files; at least 7d")
    table = given.table.rstrip("/")
    quarantine = (given.quarantine or f"{table}_quarantine").rstrip("/")
    return MaintenanceSettings(
        *(given.sink, table, quarantine, given.connection, given.retain, given.keep_after, given.job_is_stopped)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
