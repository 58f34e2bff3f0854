"""The contenders in Spark beside the job: run by spark-submit, as `spark.py CONTENDER SERVERS TOPIC FOLDER BATCH`.

copy: the job's rows without dedup, to Delta. merge: every row by MERGE into Delta. fill: so many rows (BATCH) of
the past into a Delta table, as another program's append. state: so many keys (BATCH) into the dedup's state, in large
steps with small batches between them. age: make the job's state older by so many seconds (BATCH), so that its traffic
is fresh. log: empty commits of Delta tables in whose logs the names of up to so many versions (BATCH) lie.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.session import session
from cloud.settings import KafkaSettings
from cloud.stream.records import read_records
from cloud.stream.source import drop_duplicates, read_topic
from cloud.table.commits import Commit, to_json
from cloud.table.rows import COLUMNS, decode

WINDOW_SECONDS = 4 * 3600
STARTED, FINISHED = "contender=started", "contender=finished"
DAYS = 30
MERGE_BATCHES = 2
"""MERGE of everything is slow, and does not become faster."""
POLL_SECONDS = 0.1
RETAINED_VERSIONS = 1_950
"""The versions of an hour and of the five minutes between two removals, at a trigger of 2 s."""
LOG_VERSIONS = (RETAINED_VERSIONS, 10_800, 43_200)
"""At a trigger of 2 s: two hours, six, a day."""
WARM_UP_ROUNDS, TIMED_ROUNDS = 5, 30
STEPS, SMALL_BATCHES, SMALL_KEYS = 5, 3, 2000


def main(contender: str, servers: str, topic: str, folder: str, batch: str) -> None:
    """Run one contender to the topic's end; the figures of each batch go to the log."""
    works = {"fill": fill, "state": grow, "age": age, "log": lengthen}
    with session() as spark:
        if contender in works:
            works[contender](spark, folder, int(batch))
        else:
            contend(spark, contender, KafkaSettings(servers, topic, "-", int(batch), {}), folder)
        print(FINISHED, flush=True)


def contend(spark: SparkSession, contender: str, kafka: KafkaSettings, folder: str) -> None:
    """Read the topic to its end as this contender, into a table like the job's."""
    DeltaTable(spark, f"{folder}/table", TABLE)
    rows = decode(read_records(read_topic(spark, kafka, "earliest")))
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    if contender == "merge":
        writer = writer.foreachBatch(lambda frame, _: merge(frame, f"{folder}/table"))
        query = writer.start()
        print(STARTED, flush=True)
        while query.isActive and len(query.recentProgress) < MERGE_BATCHES:
            time.sleep(POLL_SECONDS)
        query.stop()
    else:
        query = writer.partitionBy(*TABLE.partitioned_by).format("delta").start(f"{folder}/table")
        print(STARTED, flush=True)
        query.awaitTermination()
    for progress in query.recentProgress:
        print(
            f"batch={progress.batchId} rows={progress.numInputRows} milliseconds={progress.batchDuration}", flush=True
        )


def merge(rows: DataFrame, table: str) -> None:
    """Insert rows that are missing; MERGE requires each source row once."""
    rows.dropDuplicates(["fingerprint"]).createOrReplaceTempView("given")
    rows.sparkSession.sql(
        f"MERGE INTO delta.`{table}` t USING given g ON t.fingerprint = g.fingerprint WHEN NOT MATCHED THEN INSERT *"
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


def grow(spark: SparkSession, folder: str, count: int) -> None:
    """Fill the state in STEPS, each followed by SMALL_BATCHES of SMALL_KEYS: one file of keys is one batch."""
    sizes = [SMALL_KEYS] * SMALL_BATCHES + ([count // STEPS] + [SMALL_KEYS] * SMALL_BATCHES) * STEPS
    source = Path(folder) / "keys"
    written = 0
    for number, size in enumerate(sizes):
        keys = spark.range(written, written + size).select(F.unhex(F.md5(F.col("id").cast("string"))).alias("key"))
        keys.coalesce(1).write.mode("append").parquet(str(source / f"batch={number:03}"))
        for file in source.glob(f"batch={number:03}/*.parquet"):
            os.utime(file, (number, number))  # Spark takes the oldest first
        written += size
    keys = spark.readStream.schema("key binary").option("maxFilesPerTrigger", 1).parquet(str(source / "*"))
    survivors = drop_duplicates(keys.withColumn("seen", F.current_timestamp()), WINDOW_SECONDS).select("key")
    writer = survivors.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        [state] = progress.stateOperators
        print(
            f"batch={progress.batchId} rows={progress.numInputRows} milliseconds={progress.batchDuration} "
            f"disk={state.customMetrics['rocksdbSstFileSize']}",
            flush=True,
        )


def age(spark: SparkSession, table: str, seconds: int) -> None:
    """Write the job's last commit again with an earlier birth, before which no event has a copy."""
    last = DeltaTable(spark, table, TABLE).last_commit()
    assert last is not None
    assert last.birth is not None
    aged = to_json(replace(last, birth=last.birth - 1000 * seconds))
    nothing = spark.createDataFrame([], TABLE.schema).write.format("delta").mode("append").option("userMetadata", aged)
    nothing.option("txnAppId", "benchmark").option("txnVersion", 1).save(table)


def lengthen(spark: SparkSession, folder: str, versions_max: int) -> None:
    """Time empty commits of tables whose logs have increasing numbers of versions, one of each per round."""
    counts = [0, *(count for count in LOG_VERSIONS if count <= versions_max)]
    tables = {count: DeltaTable(spark, f"{folder}/table-{count}", TABLE) for count in counts}
    for count, table in tables.items():
        plant_names(Path(table.path) / "_delta_log", count)
    nothing = spark.createDataFrame([], TABLE.schema)
    for turn in range(WARM_UP_ROUNDS + TIMED_ROUNDS):
        first = turn % len(counts)
        for count in counts[first:] + counts[:first]:
            commit = Commit(tables[count].id, "benchmark", 1, turn, "events", "-", {}, {0: turn}, {0: turn})
            started = time.monotonic()
            tables[count].append(nothing, commit)
            if turn >= WARM_UP_ROUNDS:
                print(f"log round={turn} versions={count} seconds={time.monotonic() - started:.4f}", flush=True)


def plant_names(log: Path, versions: int) -> None:
    """Create the files of versions in a log: four names each, two of them checksums of the file system."""
    for number in range(versions):
        for kind in ("json", "crc"):
            name = f"{0:020}.{number:09}.{kind}"
            (log / name).touch()
            (log / f".{name}.crc").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
