"""Both ends of the stream's plan: the topic's unchanged records, and the dedup by Spark's state."""

from pyspark.sql import DataFrame, SparkSession

from cloud.settings import KafkaSettings

_FETCH: dict[str, str | int] = {
    # Spark reads both ends of the log after every poll, and discards prefetched records: few large polls are faster.
    "max.poll.records": 20_000,
    "max.partition.fetch.bytes": 4 << 20,
    # After every batch a fetch waits at the log's end, and delays the next one by up to this.
    "fetch.max.wait.ms": 100,
    # Else a topic that is being recreated gets the broker's defaults from the job, before its own settings.
    "allow.auto.create.topics": "false",
}
"""Defaults for the consumers; the user's properties override them."""


def read_topic(spark: SparkSession, kafka: KafkaSettings, starting_offsets: str) -> DataFrame:
    """Return the stream of committed records, which fails where the topic has lost unread ones."""
    options: dict[str, str | int] = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": kafka.topic,
        "startingOffsets": starting_offsets,
        "maxOffsetsPerTrigger": kafka.offsets_per_trigger_max,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in {**_FETCH, **kafka.properties}.items()},
    }
    topic = spark.readStream.format("kafka").options(**options).load()
    return topic.select("key", "value", "partition", "offset", "timestamp", "headers")


def drop_duplicates(records: DataFrame, window_seconds: int) -> DataFrame:
    """Return the first record of each key within the window: of the duplicates there, one survives.

    The watermark runs on processing time, one value per batch (`seen`); on any other time it would drop originals.
    """
    return records.withWatermark("seen", f"{window_seconds} seconds").dropDuplicatesWithinWatermark(["key"])
