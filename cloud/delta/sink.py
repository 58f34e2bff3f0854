"""The Delta tables of the job: folders, written as `cloud.table.lake` does."""

import logging

from pyspark.sql import SparkSession

from cloud.delta import log_cleaning
from cloud.delta.table import DeltaTable, Layout, excludes_writers
from cloud.sinks import Tables
from cloud.table import quarantine, rows
from cloud.table.devices import Devices
from cloud.table.lake import LakeSink
from cloud.table.transform import Transform

logger = logging.getLogger(__name__)

_LOG_PROPERTIES = {
    # A checkpoint takes as long as a small batch. Delta's default of 10 is meant for rare commits.
    "delta.checkpointInterval": "50",
    **log_cleaning.PROPERTIES,
}
_PROPERTIES = {"delta.dataSkippingStatsColumns": "received,event_time", **_LOG_PROPERTIES}
TABLE = Layout(rows.SCHEMA, rows.PARTITIONED_BY, _PROPERTIES, "oncegate", keeps_rows=True)
QUARANTINE = Layout(quarantine.SCHEMA, (), _LOG_PROPERTIES, "oncegate-quarantine", keeps_rows=False)


def open_tables(
    spark: SparkSession,
    tables: Tables,
    devices: Devices,
    retention: int,
    *,
    transform: Transform | None = None,
    keeps_new: bool = False,
) -> LakeSink:
    """Open both folders, which are created if absent; the log of a Delta table always tells of its new rows."""
    if not excludes_writers(spark, tables.table):
        logger.warning(
            "table=%s excludes=one-process hint='start no second job on it, and stop this one for maintenance'",
            tables.table,
        )
    table = DeltaTable(spark, tables.table, TABLE)
    if tables.change_feed_seconds is not None:
        table.feed_changes(tables.change_feed_seconds)
    return LakeSink(table, DeltaTable(spark, tables.quarantine, QUARANTINE), devices, retention, transform)
