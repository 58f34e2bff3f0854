"""The Iceberg tables of the job: names in a catalog, written as `cloud.table.lake` does."""

from typing import Any

from pyspark.sql import SparkSession

from cloud.iceberg import catalog
from cloud.iceberg.table import IcebergTable, create
from cloud.sinks import Tables
from cloud.table import quarantine, rows
from cloud.table.devices import Devices
from cloud.table.lake import LakeSink
from cloud.table.transform import Transform


def open_tables(
    spark: SparkSession,
    tables: Tables,
    devices: Devices,
    retention: int,
    *,
    transform: Transform | None = None,
    **_: Any,
) -> LakeSink:
    """Open both tables, which are created if absent; a snapshot always tells of its new rows."""
    names = catalog.connect(spark, tables)
    for name, schema, by in zip(names, (rows.SCHEMA, quarantine.SCHEMA), (rows.PARTITIONED_BY, ()), strict=True):
        create(spark, name, schema, by)
    table, unfit = (IcebergTable(spark, name, keeps_rows=name == names[0]) for name in names)
    for opened in (table, unfit):
        opened.check_files()
    table.widen(rows.SCHEMA)
    unfit.widen(quarantine.SCHEMA)
    return LakeSink(table, unfit, devices, retention, transform)
