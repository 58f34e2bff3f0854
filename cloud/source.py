"""The topic as a stream: what Kafka holds of each record, untouched."""

from pyspark.sql import DataFrame, SparkSession

from cloud.settings import KafkaSettings


def read_topic(spark: SparkSession, kafka: KafkaSettings, starting_offsets: str) -> DataFrame:
    """Give committed records only, and fail where the topic has lost some."""
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
    for name, value in kafka.properties.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.load().select("key", "value", "partition", "offset", "timestamp", "headers")
