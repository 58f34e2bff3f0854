"""Removes expired entries from the log of a Delta table, which Delta itself leaves there."""

import logging
import threading
import time

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from cloud.runtime import disk, jvm
from cloud.runtime.disk import FlushedFolders

logger = logging.getLogger(__name__)

PROPERTIES = {
    # Every commit lists the whole log. Delta's default of 30 days means a million versions at a trigger of 2 s.
    "delta.logRetentionDuration": "interval 1 hour",
    # With a commit of any program Delta could remove the job's last commit, or an entry that the job has not read yet.
    "delta.enableExpiredLogCleanup": "false",
}
"""Properties of a table whose log is cleaned here (decision 45)."""
INTERVAL_SECONDS = 300.0
"""The interval at which a job removes expired entries from its table's log."""


class LogCleaner:
    """Cleans a table's log from time to time, beside the batches.

    In an object store an entry takes three requests, one after the other, so that a cleaning takes longer than a batch.
    Before that the folder is flushed to disk: a power cut could otherwise take a checkpoint that Delta has just made,
    and with it the only description of the table, once the entries before it are removed.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._begun = time.monotonic()
        self._folder = FlushedFolders(disk.local_folders(spark, [path]))
        self._work: threading.Thread | None = None

    def clean_if_due(self) -> None:
        """Begin to remove expired entries where it is time and the last cleaning has ended.

        To be called as `clean_log` is.
        """
        if time.monotonic() - self._begun <= INTERVAL_SECONDS or (self._work is not None and self._work.is_alive()):
            return
        self._begun = time.monotonic()
        # A daemon, since the end of the job need not wait for it: whatever it leaves, the next cleaning removes.
        self._work = InheritableThread(self._clean, name="clean-log", daemon=True)
        self._work.start()

    def _clean(self) -> None:
        try:
            self._folder.flush()
            clean_log(self._spark, self._path)
        except Exception as error:  # noqa: BLE001  # the top of a thread; the session may be closed by now
            logger.debug("table=%s stage=clean-log error=%r", self._path, str(error))


def clean_log(spark: SparkSession, path: str) -> None:
    """Remove entries that are older than the log's retention, to the minute.

    To be called after a commit, by which the log was read. A failure is only logged: the rows are committed, and a
    longer log only makes commits slower.
    """
    try:
        log = jvm.delta_log(spark, path)
        none = jvm.java_class(spark, "scala.Option").empty()  # no catalog, and the table's own retention
        minutes = jvm.java_class(spark, "org.apache.spark.sql.delta.TruncationGranularity").MINUTE()
        log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), none, none, minutes)
    except jvm.FAILURES as error:
        logger.warning("table=%s stage=clean-log error=%r hint='a longer log makes commits slower'", path, str(error))
