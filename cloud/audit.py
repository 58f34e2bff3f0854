"""Account for every label of the topic, independently of the job's code, and name what is missing.

It reads the headers of all records that have a receipt and that no earlier audit has read, compares them with the table
and its quarantine, and writes its results to tables in the output folder, which docs/cloud.md lists.
"""

import logging
import sys
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud import sinks
from cloud.auditing import account, forgery, report, sections
from cloud.auditing.findings import NAMED_MAX, Findings, Named, Subject, find, to_locate
from cloud.auditing.settings import AuditSettings, parse
from cloud.auditing.store import Store, TopicSpan
from cloud.auditing.table import TableView, read_table, table_id
from cloud.auditing.topic import Topic, read, said_at
from cloud.auditing.topic import signed as signed_by
from cloud.committed import objection
from cloud.errors import StopError
from cloud.gateways import GatewayFile
from cloud.runtime import jvm
from cloud.runtime.outcome import exit_status, printable, version_of_package
from cloud.session import session

logger = logging.getLogger("cloud.audit")

OFFSETS_PER_TASK = 100_000
"""The size of a task in a large audit; with one task per core, ten million labels would not fit into memory."""


def main(arguments: list[str]) -> int:
    """Run one audit."""
    return exit_status(partial(_run, parse(arguments)), logger)


def _run(settings: AuditSettings) -> int:
    with session() as spark:
        findings = audit(spark, settings)
    for line in report.lines(findings):
        print(printable(line))
    if settings.report is not None:
        Path(settings.report).write_text(report.page(findings), encoding="utf-8")
    if settings.metrics_file is not None:
        report.write_metrics(findings, settings.metrics_file)
    return 0 if findings.is_whole else 1


def audit(spark: SparkSession, settings: AuditSettings) -> Findings:
    """Read the records since the last audit, judge them, and store the result."""
    check_output(spark, settings)
    keys = None if settings.gateways is None else GatewayFile(settings.gateways, settings.topic)
    topic = Topic(spark, settings.bootstrap_servers, settings.topic, settings.properties)
    store = Store(spark, settings.output)
    try:
        span = span_to_read(topic, store, settings.group, table_id(spark, settings.tables))
        logger.info("stage=read offsets=%d gone=%d", span.offsets, span.gone)
        tasks = max(spark.sparkContext.defaultParallelism, span.offsets // OFFSETS_PER_TASK)
        spark.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", tasks)
        view = read_table(spark, settings.tables)  # after the receipts: every receipted event must be there now
        raw = view.quarantine.filter(F.col("topic_id") == span.topic_id)
        newer = sections.have_newer(view.gateway_events)
        loaded = topic.load(span.starts, span.ends)
        new = read(loaded, are_newer=newer).drop("value")
        records = new.unionByName(store.unwritten(span))
        judged = account.judge(records, view.rows, raw).persist()
        ended = account.endings(view.gateway_events).persist()
        covered = cover(store, judged, view, span, everything=span.gone > 0 or not store.ends(span.topic_id))
        open_ = account.overdue(account.holes(covered, ended), F.current_timestamp(), settings.grace_seconds)
        ranges = covered.unionByName(open_).localCheckpoint()
        states = account.states(ranges, ended)
        stated = sections.stated(view.gateway_events)
        if keys is not None:  # a further pass over the new records
            keys.renewed()
            signed = signed_by(loaded, keys.signers).localCheckpoint()
            stated = stated.unionByName(sections.stated(signed, signed=True))
        compared = compare(store, judged, view, ranges, stated)
        if keys is not None:
            compared = sections.vouched(compared)
        compared = compared.unionByName(sections.uncovered(compared, states, ended)).localCheckpoint()
        series = store.series(datetime.now(UTC).replace(microsecond=0))
        unaccounted = account.unaccounted(covered, of_read_records(topic, view.rows, span))
        sought, there = to_locate(ranges).localCheckpoint(), records.limit(0)
        if not sought.isEmpty():  # a further pass over the topic
            there = read(topic.load(*retained(topic, span))).drop("value")
        located = there.join(F.broadcast(sought), on=list(account.LABEL))
        subject = Subject(datetime.now(UTC), series, version_of_package(), spark.version, settings, span)
        named = Named(located, unaccounted, *forgeries(topic, loaded, store, judged, view.rows, settings.verify))
        findings = find(judged, view.rows, ranges, states, compared, named, subject)
        logger.info("stage=judged missing=%d", findings.missing)
        store.keep(
            ranges.join(states.select(*account.EPOCH, "state"), on=list(account.EPOCH)), judged, compared, span, series
        )
    finally:
        topic.close()
    return findings


def check_output(spark: SparkSession, settings: AuditSettings) -> None:
    """Raise StopError where the output is within a table's folder: maintenance removes all other files there."""
    for table in settings.tables.folders:
        if sinks.is_within(jvm.qualify(spark, settings.output), jvm.qualify(spark, table)):
            raise StopError(f"--output {settings.output} is within {table}: it needs a folder of its own")


def span_to_read(topic: Topic, store: Store, group: str, table: str) -> TopicSpan:
    """Return the offsets to read: from the end of this topic's last audit, or the topic's first, up to the receipts.

    Raise StopError where an offset that the group has committed is no receipt of the table.
    """
    topic_id, earliest, committed = topic.id(), topic.earliest(), topic.committed(group)
    latest = topic.latest()  # after the receipts, which it is not below
    for partition in sorted(committed.keys() & latest.keys()):
        one, (end, epoch) = committed[partition], latest[partition]
        why = objection(one, table, topic_id)
        if why is None and (one.offset > end or (epoch is not None and (one.leader_epoch or 0) > epoch)):
            why = f"it has epoch {one.leader_epoch}, and the log ends at {end} in epoch {epoch}"
        if why is not None:
            raise StopError(
                f"group {group}, partition {partition}: offset {one.offset} is no receipt of table {table}: {why}. "
                "Name the table's own group; or find out who else commits to it. A job that runs repeats its receipts"
            )
    receipted = {partition: one.offset for partition, one in committed.items()}
    if not receipted:
        raise StopError(f"group {group} has committed no receipts of this topic: there is nothing to audit yet")
    known = store.ends(topic_id)
    # Spark reads all partitions of a topic or none; of one that was added, the job has perhaps not read anything yet.
    ends = {partition: receipted.get(partition, first) for partition, first in earliest.items()}
    starts = {partition: min(max(known.get(partition, 0), earliest[partition]), end) for partition, end in ends.items()}
    gone = sum(max(0, earliest[partition] - known.get(partition, 0)) for partition in ends)
    return TopicSpan(topic_id, starts, ends, gone)


def of_read_records(topic: Topic, rows: DataFrame, span: TopicSpan) -> DataFrame:
    """Return the rows with records below the span's end, or beyond the log's, where no record can be."""
    is_read = account.is_before(span.ends)
    beyond = rows.filter(~is_read).localCheckpoint()  # before the log's end is asked for: a job adds rows meanwhile
    ends = {partition: end for partition, (end, _) in topic.latest().items()}
    return rows.filter(is_read).unionByName(beyond.filter(~account.is_before(ends)))


def retained(topic: Topic, span: TopicSpan) -> tuple[dict[int, int], dict[int, int]]:
    """Return the offsets of all records that the topic still has below the end of the span."""
    earliest = topic.earliest()
    return {partition: min(earliest[partition], end) for partition, end in span.ends.items()}, span.ends


def cover(store: Store, judged: DataFrame, view: TableView, span: TopicSpan, *, everything: bool) -> DataFrame:
    """Return the merged ranges of all labels that are accounted for, or known to be wrong.

    With `everything` the table's rows count as accepted, for records that the topic no longer has.
    """
    labels = account.labels(judged)
    parts = [
        account.ranges(labels),
        account.ranges(account.ambiguous(judged, view.rows, store.read("duplicates"))),
        account.declared(view.gateway_events),
        *store.ranges(healed=labels.filter(F.col("status") != account.UNWRITTEN)),
    ]
    if everything:
        rows = view.rows.withColumn("status", F.lit(account.ACCEPTED)).withColumnRenamed("appended", "since")
        parts.append(account.ranges(rows))
    covered = account.merged(reduce(DataFrame.unionByName, parts)).localCheckpoint()
    lost = account.vanished(covered, view.rows, span.ends).localCheckpoint()
    return covered if lost.isEmpty() else account.with_vanished(covered, lost).localCheckpoint()


def forgeries(
    topic: Topic, loaded: DataFrame, store: Store, judged: DataFrame, rows: DataFrame, share: float
) -> tuple[DataFrame, dict[str, int]]:
    """Return the forgeries whose rows the table has, and the counts of records that were verified now."""
    suspects = forgery.suspects(judged, rows, partial(said_at, loaded))
    new = forgery.conflicts(suspects, topic.values(forgery.places(suspects)))
    counts: dict[str, int] = {}
    if share:  # a further pass over the new records
        sampled = forgery.verified(read(loaded.sample(share))).localCheckpoint()
        counts = {row["status"]: row["count"] for row in sampled.groupBy("status").count().collect()}
        new += map(tuple, sampled.filter(F.col("status") == forgery.FORGED).limit(NAMED_MAX).collect())
    found = store.forgeries(new, rows).localCheckpoint()
    there = {row["status"]: row["count"] for row in found.groupBy("status").count().collect()}
    return found, {**counts, forgery.FORGED: 0, **there}


def compare(store: Store, judged: DataFrame, view: TableView, ranges: DataFrame, stated: DataFrame) -> DataFrame:
    """Return the sections that gateways have stated, now or in an earlier audit, compared with the table."""
    statements = stated.unionByName(store.statements())
    others = (
        account.without_row(judged)
        .select(*account.LABEL, "leaf")
        .unionByName(store.read("leaves").select(*account.LABEL, "leaf"))
    )
    leaves = (*account.LABEL, "row_leaf", "leaf")
    newer = account.newer(judged).select(*leaves).unionByName(store.read("newer").select(*leaves))
    of_rows = sections.as_stated(view.leaves, newer)
    return sections.compared(statements, of_rows, others, ranges).localCheckpoint()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
