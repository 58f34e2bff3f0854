"""Removes expired entries from the log of a Delta table, which Delta itself leaves there."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from cloud.runtime import jvm

logger = logging.getLogger(__name__)

PROPERTIES = {
    # Every commit lists the whole log. Delta's default of 30 days means a million versions at a trigger of 2 s.
    "delta.logRetentionDuration": "interval 1 hour",
    # With anybody's commit Delta could remove the job's last commit, or an entry that the job has not read yet.
    "delta.enableExpiredLogCleanup": "false",
}
"""Properties of a table whose log is cleaned here."""


def clean_log(spark: SparkSession, path: str) -> None:
    """Remove entries that are older than the log's retention, to the minute.

    To be called after a commit, by which the log was read. A failure is only logged: the rows are committed, and a
    longer log only makes commits slower.
    """
    try:
        _remove_expired(spark, path)
    except jvm.FAILURES as error:
        logger.warning("table=%s stage=clean-log error=%r hint='a longer log makes commits slower'", path, str(error))


def _remove_expired(spark: SparkSession, path: str) -> None:
    delta: Any = jvm.classes(spark).org.apache.spark.sql.delta
    session: Any = spark
    log = delta.DeltaLog.forTable(session._jsparkSession, jvm.hadoop_path(spark, path))
    retention = jvm.classes(spark).scala.Option.empty()  # the table's own
    log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), retention, delta.TruncationGranularity.MINUTE())
