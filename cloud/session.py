"""The Spark session, with the settings that the job's guarantees and speed depend on."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from cloud.table.lookup import NAMED_MAX

ROCKSDB_MEGABYTES_MAX = 512

_PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def session() -> Iterator[SparkSession]:
    """Open the session that spark-submit has prepared, and stop it at the end.

    The number of partitions (`--conf spark.sql.shuffle.partitions=N`) is fixed by a checkpoint's first batch; the
    default is the number of cores.
    """
    builder = SparkSession.builder.appName("oncegate")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    set_parquet(spark)
    if spark.sparkContext.getConf().get("spark.log.level") is None:
        spark.sparkContext.setLogLevel("WARN")
    if spark.sparkContext.getConf().get(_PARTITIONS) is None:
        spark.conf.set(_PARTITIONS, spark.sparkContext.defaultParallelism)
    # The number of tasks with which Delta reads its own log at every commit; its default is 50.
    spark.conf.set("spark.databricks.delta.snapshotPartitions", spark.conf.get(_PARTITIONS) or "2")
    try:
        yield spark
    finally:
        spark.stop()


def session_if(*, needed: bool) -> AbstractContextManager[SparkSession | None]:
    """Open the session where it is needed."""
    return session() if needed else nullcontext()


def set_parquet(spark: SparkSession) -> None:
    """Set what Parquet itself reads, which no builder takes without a warning that it is ignored."""
    for name, value in PARQUET.items():
        spark.conf.set(name, value)


_STATE = "spark.sql.streaming.stateStore"

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # For timestamps of the years 1 to 9999 with statistics; INT96 has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": str(ROCKSDB_MEGABYTES_MAX),
    # Otherwise each commit lists all files of the table again, up to 2,000.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # A log is kept for an hour and removed files for longer: Delta's own readers go back no further than the log.
    "spark.databricks.delta.vacuum.enforceDeletedFileAndLogRetentionDurationCompatibility": "false",
    # Otherwise VACUUM removes what is older than a week, whatever `maintenance --retain` says.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # Spark 4.2 warns at each function of a transform where there is no pandas; `udf(useArrow=True)` asks for it.
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    # Else, with Delta 4.4.0, VACUUM takes the entries of the log for files of the table (decision 81).
    "spark.hadoop.delta.enableFastS3AListFrom": "false",
    # The number of tasks with which VACUUM lists a table's folders; the default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.sql.parquet.pushdown.inFilterThreshold": str(NAMED_MAX),
    # A batch without data would scan the whole state without effect.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

PARQUET = {
    # Parquet's Bloom filter over the fingerprints lets a look-up skip row groups. Parquet fills 12 candidates from
    # 1 MiB down and keeps the smallest that is large enough.
    "parquet.bloom.filter.enabled#fingerprint": "true",
    "parquet.bloom.filter.adaptive.enabled": "true",
    "parquet.bloom.filter.candidates.number#fingerprint": "12",
}
