"""Write every event of the topic into the table once, and commit receipts for the gateways.

spark-submit runs this file (cloud/cli/spark.py). `--conf spark.sql.shuffle.partitions=N` sets the number of the
state's partitions for the lifetime of a checkpoint; the default is the number of cores.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import cast

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cloud.errors import EndingError, JobError, RestartError
from cloud.gateways import GatewayFile
from cloud.runtime import disk, jvm
from cloud.runtime.outcome import exit_status
from cloud.runtime.repeated import Repeated
from cloud.runtime.shutdown import StopRequest
from cloud.session import session
from cloud.settings import JobSettings, parse
from cloud.stream import offsets
from cloud.stream.batch import BatchWriter
from cloud.stream.checkpoint import Checkpoint
from cloud.stream.claim import claim_table, is_first_start
from cloud.stream.clock import wait_for_clock
from cloud.stream.effects import Effects
from cloud.stream.kafka_admin import KafkaAdmin
from cloud.stream.progress import Observer, ProgressLines
from cloud.stream.receipts import Receipts
from cloud.stream.records import key_frame, observed, read_records
from cloud.stream.source import drop_duplicates, read_topic
from cloud.stream.topic_log import TopicLog
from cloud.table.commits import Commit
from cloud.table.devices import Devices
from cloud.table.sink import EffectsSink, Sink
from cloud.table.transform import Transform

logger = logging.getLogger("cloud.job")

POLL_SECONDS = 0.5
_LOGS_ERRORS = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
"""Spark's logger of an error that ends the stream."""


def main(arguments: list[str]) -> int:
    """Run the job until a stop is requested."""
    return exit_status(partial(_run, parse(arguments)), logger)


def _run(settings: JobSettings) -> int:
    with session() as spark:
        settings = qualify(spark, settings)
        settings.check_folders()
        checkpoint = Checkpoint(spark, settings.checkpoint, settings.kafka.topic)
        observer, stop = open_observer(settings.metrics), StopRequest()
        stop.listen(spark)
        run_on_checkpoint(spark, settings, checkpoint, observer, stop)
    return 0


def run_on_checkpoint(
    spark: SparkSession, settings: JobSettings, checkpoint: Checkpoint, observer: Observer, stop: StopRequest
) -> None:
    """Open topic and table, commit the receipts of the table's last commit, and run the stream between them.

    After a failed flush, later starts stop until an operator has checked the disk.
    """
    gateways = None if settings.gateways is None else GatewayFile(settings.gateways, settings.kafka.topic)
    checkpoint.check_flush()
    admin, sink = KafkaAdmin(spark, settings.kafka), open_sink(spark, settings)

    topic, topic_id = settings.kafka.topic, admin.topic_id()
    log, ranges = TopicLog(admin, topic), admin.offset_ranges()
    log.check_settings()
    read = sink.last_commit()
    is_first = is_first_start(checkpoint, read)
    if read is not None and not (settings.read_again and is_first):
        offsets.check_log(topic, topic_id, read, ranges)
        log.check(read, {})
    if not is_first:
        sink.check()
    with disk.FlushedFolders(disk.local_folders(spark, (*sink.folders, settings.checkpoint))) as folders:
        last = claim_table(sink, checkpoint, topic, topic_id, read_again=settings.read_again)
        flush = partial(checkpoint.flush, folders)
        group = settings.kafka.group
        receipts = Receipts(admin, log, group, settings.succeeds, sink.check, flush)
        effects = open_effects(settings, checkpoint, sink, flush, observer, stop, receipts)
        if not effects(last):
            return
        receipts.commit(last)
        offsets.check_plan(topic, checkpoint.unfinished(), ranges)

        if not wait_for_clock(checkpoint, stop.wait, receipts.repeat):
            return
        parts = (checkpoint, sink, receipts, last, settings.window_seconds, log, observer)
        writer = BatchWriter(*parts, effects, bool if gateways is None else gateways.renewed)
        starting = offsets.starting_offsets(topic, last, ranges)
        spark.streams.addListener(ProgressLines(observer))

        def begin() -> StreamingQuery:
            return start(survivors_of(spark, settings, starting, gateways), writer, settings)

        supervise(begin, writer, receipts, stop)


def qualify(spark: SparkSession, settings: JobSettings) -> JobSettings:
    """Return the settings with full paths of folders."""
    settings = replace(settings, checkpoint=jvm.qualify(spark, settings.checkpoint))
    return replace(settings, tables=settings.tables.qualified(partial(jvm.qualify, spark)))


def open_sink(spark: SparkSession, settings: JobSettings) -> Sink:
    """Open the table, which is created if absent."""
    devices = Devices(spark, settings.devices)
    processing: dict[str, object] = {}
    if settings.tables.kind.is_processing:
        transform = None if settings.transform is None else Transform(settings.transform)
        processing = {"transform": transform, "keeps_new": settings.effects is not None}
    opens = resolve_name(settings.tables.kind.opens)
    sink: Sink = opens(spark, settings.tables, devices, settings.retention_seconds, **processing)
    return sink


def open_effects(
    settings: JobSettings,
    checkpoint: Checkpoint,
    sink: Sink,
    flush: Callable[[], None],
    observer: Observer,
    stop: StopRequest,
    receipts: Receipts,
) -> Callable[[Commit], bool]:
    """Return a function that makes the user's effects of the table's last commit."""
    if settings.effects is None:
        return lambda _: True
    new = cast("EffectsSink", sink)  # of the kinds that take the option
    calls = Repeated(settings.effects, settings.effects_seconds_max, observer)
    return Effects(calls, new, checkpoint, flush, stop.wait, receipts.note_failing)


def open_observer(address: tuple[str, int] | None) -> Observer:
    """Return an observer that serves metrics for Prometheus, if an address is set."""
    if address is None:
        return Observer()
    from cloud.stream.metrics import JobMetrics  # prometheus_client is needed for this alone

    return JobMetrics(address)


def survivors_of(
    spark: SparkSession, settings: JobSettings, starting_offsets: str, gateways: GatewayFile | None = None
) -> DataFrame:
    """Return the stream of survivors: read, check, drop duplicates."""
    topic = read_topic(spark, settings.kafka, starting_offsets)
    keys = None if gateways is None else key_frame(spark, gateways.keys, settings.kafka.topic)
    records = observed(read_records(topic, settings.retention_seconds, keys))
    return drop_duplicates(records, settings.window_seconds)


def start(survivors: DataFrame, writer: BatchWriter, settings: JobSettings) -> StreamingQuery:
    """Start the stream with new consumers; each batch is looked up, written, committed and receipted."""
    writer.begin_query()
    jvm.set_log_level(survivors.sparkSession, _LOGS_ERRORS, "WARN")
    return (
        survivors.writeStream.queryName("oncegate")
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=f"{settings.trigger_seconds} seconds")
        .foreachBatch(partial(write, writer))
        .start()
    )


def write(writer: BatchWriter, survivors: DataFrame, batch: int) -> None:
    """Write a batch; after an error of the job's own, silence Spark's pages about it."""
    try:
        writer(survivors, batch)
    except JobError:
        jvm.set_log_level(survivors.sparkSession, _LOGS_ERRORS, "OFF")
        raise


def supervise(begin: Callable[[], StreamingQuery], writer: BatchWriter, receipts: Receipts, stop: StopRequest) -> None:
    """Run the stream until it fails, or a stop is requested; restart it where plan or consumers are outdated."""
    query = begin()
    try:
        while not stop.wait(POLL_SECONDS):
            if query.isActive:
                receipts.repeat()
            elif isinstance(writer.error, RestartError):
                logger.info("stage=restarting reason=%r", str(writer.error))
                with suppress(StreamingQueryException):
                    query.awaitTermination()
                query = begin()
            else:
                break
    finally:  # no batch goes on once the folders are closed
        writer.close()
        logger.info("stage=stopping")
        query.stop()
    if isinstance(writer.error, RestartError | EndingError):
        return  # a stop was requested, and nothing of the batch is receipted
    if writer.error is not None:
        raise writer.error
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
