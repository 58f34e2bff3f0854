"""The Spark session, with the settings that the job's promise and speed rest on."""

from pyspark.sql import SparkSession

from cloud.table.lookup import NAMED_MAX

ROCKSDB_MEGABYTES_MAX = 512

_PARTITIONS = "spark.sql.shuffle.partitions"


def open_session() -> SparkSession:
    """Open the session that spark-submit has prepared; `--conf spark.sql.shuffle.partitions=N` is the user's choice.

    Their number is frozen with a checkpoint's first batch; without a choice it is the number of cores.
    """
    builder = SparkSession.builder.appName("oncegate")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if spark.sparkContext.getConf().get("spark.log.level") is None:
        spark.sparkContext.setLogLevel("WARN")
    if spark.sparkContext.getConf().get(_PARTITIONS) is None:
        spark.conf.set(_PARTITIONS, spark.sparkContext.defaultParallelism)
    # Delta reads its own log with that many tasks at every commit, 50 unless told.
    spark.conf.set("spark.databricks.delta.snapshotPartitions", spark.conf.get(_PARTITIONS) or "2")
    return spark


_STATE = "spark.sql.streaming.stateStore"

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Moments of the years 1 to 9999, with statistics; INT96 has none.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": str(ROCKSDB_MEGABYTES_MAX),
    # Else each commit writes down all of the table's files once more, up to 2,000.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # VACUUM lists a table's folders with that many tasks, 10,000 unless told.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # Parquet's Bloom filter over the fingerprints tells a look-up which row groups it need not read. As small as the
    # file allows: 12 sizes from 1 MiB down are filled at once, and the smallest that holds all is kept.
    "parquet.bloom.filter.enabled#fingerprint": "true",
    "parquet.bloom.filter.adaptive.enabled": "true",
    "parquet.bloom.filter.candidates.number#fingerprint": "12",
    "spark.sql.parquet.pushdown.inFilterThreshold": str(NAMED_MAX),
    # A batch without data would scan the whole state for nothing.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
