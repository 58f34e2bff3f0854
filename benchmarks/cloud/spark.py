"""The contenders in Spark beside the job: run by spark-submit, as `spark.py CONTENDER SERVERS TOPIC FOLDER BATCH`.

copy: the job's rows without dedup, to Delta. fill: so many rows (BATCH) of the past into a Delta table, as another
program's append. age: make the job's state older by so many seconds (BATCH), so that its traffic is fresh.
"""

import sys
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.session import session
from cloud.settings import KafkaSettings
from cloud.stream.records import read_records
from cloud.stream.source import read_topic
from cloud.table.commits import to_json
from cloud.table.rows import COLUMNS, decode

STARTED, FINISHED = "contender=started", "contender=finished"
DAYS = 30


def main(contender: str, servers: str, topic: str, folder: str, batch: str) -> None:
    """Run one contender to the topic's end; the figures of each batch go to the log."""
    works = {"fill": fill, "age": age}
    with session() as spark:
        if contender in works:
            works[contender](spark, folder, int(batch))
        else:
            copy(spark, KafkaSettings(servers, topic, "-", int(batch), {}), folder)
        print(FINISHED, flush=True)


def copy(spark: SparkSession, kafka: KafkaSettings, folder: str) -> None:
    """Read the topic to its end, into a table like the job's."""
    DeltaTable(spark, f"{folder}/table", TABLE)
    rows = decode(read_records(read_topic(spark, kafka, "earliest")))
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.partitionBy(*TABLE.partitioned_by).format("delta").start(f"{folder}/table")
    print(STARTED, flush=True)
    query.awaitTermination()
    for progress in query.recentProgress:
        print(
            f"batch={progress.batchId} rows={progress.numInputRows} milliseconds={progress.batchDuration}", flush=True
        )


def fill(spark: SparkSession, table: str, count: int) -> None:
    """Append rows of the last DAYS days with fingerprints of their own."""
    number = F.col("id")
    day = F.date_sub(F.current_date(), (number % DAYS).cast("int") + 1)
    given = {
        "fingerprint": F.unhex(F.md5(number.cast("string"))),
        "device": F.format_string("urn:dev:mac:%016x", number % 500),
        "type": F.lit("reading"),
        "id": number.cast("string"),
        "received": day.cast("timestamp"),
        "gateway": F.lit("gw-0"),
        "epoch": F.lit("00000000000000f0"),
        "sequence": number + 1,
        "data": F.format_string('{"t":%d}', number % 50),
        "day": day,
    }
    columns = [given.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    rows = spark.range(count).select(*columns).repartition(DAYS, "day")
    rows.write.format("delta").mode("append").save(table)


def age(spark: SparkSession, table: str, seconds: int) -> None:
    """Write the job's last commit again with an earlier birth, before which no event has a copy."""
    last = DeltaTable(spark, table, TABLE).last_commit()
    assert last is not None
    assert last.birth is not None
    aged = to_json(replace(last, birth=last.birth - 1000 * seconds))
    nothing = spark.createDataFrame([], TABLE.schema).write.format("delta").mode("append").option("userMetadata", aged)
    nothing.option("txnAppId", "benchmark").option("txnVersion", 1).save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
