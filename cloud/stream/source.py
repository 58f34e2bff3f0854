"""The topic as a stream: what Kafka holds of each record, untouched."""

from pyspark.sql import DataFrame, SparkSession

from cloud.settings import KafkaSettings

_FETCH: dict[str, str | int] = {
    # Spark asks for the log's two ends after every poll, and forgets what was fetched ahead: few large ones are faster.
    "max.poll.records": 20_000,
    "max.partition.fetch.bytes": 4 << 20,
    # A fetch at the log's end, of which there is one under way after every batch, delays the next by up to this.
    "fetch.max.wait.ms": 100,
}
"""For the consumers; the user's own stand above them."""


def read_topic(spark: SparkSession, kafka: KafkaSettings, starting_offsets: str) -> DataFrame:
    """Read committed records only, and fail where the topic has lost some."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", kafka.topic)
        .option("startingOffsets", starting_offsets)
        .option("maxOffsetsPerTrigger", kafka.offsets_per_trigger_max)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
    )
    for name, value in {**_FETCH, **kafka.properties}.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.load().select("key", "value", "partition", "offset", "timestamp", "headers")
