from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud import maintenance
from cloud.delta import quarantine
from cloud.delta.sink import QUARANTINE, TABLE, DeltaSink
from cloud.delta.table import DeltaTable, excludes_writers
from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table import id_reuse, lookup
from cloud.table.commits import CLAIM_ONLY, Commit, Kept, to_json
from cloud.table.counts import count_rows
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon
from cloud.table.lookup import Search
from cloud.table.rows import decode
from contract.event import Event
from tests.cloud import big_topic
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import append_as_another, topic

pytestmark = pytest.mark.spark

DEVICE = "urn:dev:mac:0000000000000001"
DAY = 86_400_000
ACCEPTED = 1_700_000_000_000
COMMIT = Commit("t", "c", 1, 0, "events", "id", {0: 0}, {0: 9}, {0: 0}, 0, 60)
ALL_LATE = Horizon(ACCEPTED + 30 * DAY, ACCEPTED, 3600, overlaps=True)


def late(spark: SparkSession, records: list[Record]) -> DataFrame:
    return read_records(topic(spark, records)).withColumn("fresh", F.lit(False))


def table_of(spark: SparkSession, folder: Path, records: list[Record]) -> DeltaTable:
    table = DeltaTable(spark, str(folder / "events"), TABLE)
    assert table.append(decode(late(spark, records)), COMMIT) == len(records)
    return table


def counters(*numbers: int) -> list[Event]:
    return [Event(DEVICE, id=number, data={"n": number}) for number in numbers]


def test_what_the_table_has_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    gateway = Gateway()
    table = table_of(spark, tmp_path, gateway.records(counters(1, 2), ACCEPTED))
    survivors = late(spark, gateway.records(counters(2, 3), ACCEPTED + 5 * DAY))
    counts = count_rows(survivors, ALL_LATE)
    found = lookup.find(survivors, table.rows(), counts.search)
    assert (counts.rows, counts.late, counts.bad, counts.search, found.count) == (2, 2, 0, Search(2), 1)
    assert [row["id"] for row in decode(lookup.without_found(survivors, found)).collect()] == ["3"]


@pytest.mark.heavy
def test_the_shared_days_suffice_where_there_are_some(spark: SparkSession, tmp_path: Path) -> None:
    events = [event._replace(time=ACCEPTED) for event in counters(1, 2)]
    table = table_of(spark, tmp_path, Gateway().records(events, ACCEPTED + DAY))
    survivors = late(spark, Gateway("gw-2").records([*events, Event(DEVICE, data={"n": 1})], ACCEPTED + 9 * DAY))
    counts = count_rows(survivors, ALL_LATE)
    assert counts.search.days is not None
    assert set(counts.search.days) == {date(2023, 11, 14), date(2023, 11, 23)}
    assert lookup.find(survivors, table.rows(), counts.search).count == 2


@pytest.mark.heavy
@pytest.mark.parametrize(("first", "later"), [(0, 400 * DAY), (400 * DAY, 0)])
def test_a_copy_is_found_whether_or_not_its_day_is_a_partition(
    spark: SparkSession, tmp_path: Path, first: int, later: int
) -> None:
    events = [event._replace(time=ACCEPTED) for event in counters(1, 2)]
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    for end in (first, later):
        records = read_records(topic(spark, Gateway().records(events, ACCEPTED), ACCEPTED + end))
        survivors = records.withColumn("fresh", F.lit(False))
        found = lookup.find(survivors, table.rows(), count_rows(survivors, ALL_LATE).search)
        assert found.count == (0 if end == first else 2)
        table.append(decode(survivors), replace(COMMIT, batch=int(end != first)))
    assert table.rows().select("day").distinct().count() == 2


@pytest.mark.heavy
@pytest.mark.parametrize("is_timed", [True, False])
def test_a_look_up_opens_only_the_files_whose_moments_fit(spark: SparkSession, tmp_path: Path, is_timed: bool) -> None:
    table, gateway = DeltaTable(spark, str(tmp_path / "events"), TABLE), Gateway()
    batches = [
        gateway.records([Event(DEVICE, time=moment if is_timed else None, data={"n": 1})], moment)
        for moment in range(ACCEPTED, ACCEPTED + 5 * 60_000, 60_000)
    ]
    frames = [read_records(topic(spark, batch, ACCEPTED)) for batch in batches]
    for number, frame in enumerate(frames):
        before = set((tmp_path / "events").glob("day=*/*.parquet"))
        table.append(decode(frame), replace(COMMIT, batch=number))
        if number != 3:  # whoever opens the other files fails
            for file in set((tmp_path / "events").glob("day=*/*.parquet")) - before:
                file.unlink()
    survivors = frames[3].withColumn("fresh", F.lit(False))
    assert lookup.find(survivors, table.rows(), count_rows(survivors, ALL_LATE).search).count == 1


@pytest.mark.heavy
@pytest.mark.parametrize("is_there", [False, True])
def test_a_look_up_of_an_id_without_a_time_reads_no_row_group_that_lacks_it(
    spark: SparkSession, tmp_path: Path, is_there: bool
) -> None:
    table, gateway = DeltaTable(spark, str(tmp_path / "events"), TABLE), Gateway()
    for batch in range(2):  # more fingerprints than a dictionary holds
        many = big_topic.rows(big_topic.events(spark, 100_000)).withColumn(
            "fingerprint", F.expr(f"unhex(md5('{batch}-' || monotonically_increasing_id()))")
        )
        table.append(many.coalesce(1), replace(COMMIT, batch=batch))
    records = gateway.records(counters(1), ACCEPTED)
    if is_there:
        table.append(decode(late(spark, records)), replace(COMMIT, batch=2))
    survivors = late(spark, records)
    rows = lookup.sought(survivors, table.rows(), count_rows(survivors, ALL_LATE).search)
    assert rows.count() == is_there
    assert rows_read(rows) == is_there


def rows_read(frame: DataFrame) -> int:
    """Run a query, and count the rows that its scan of files gives."""
    frame.collect()
    plan: Any = frame._jdf.queryExecution().executedPlan()
    [scan] = [node for node in leaves(plan) if node.metrics().contains("numFiles")]
    return int(scan.metrics().apply("numOutputRows").value())


def leaves(plan: Any) -> list[Any]:
    inner = [plan.executedPlan()] if plan.nodeName().startswith("AdaptiveSparkPlan") else []
    children = inner + [plan.children().apply(place) for place in range(plan.children().size())]
    return [leaf for child in children for leaf in leaves(child)] if children else [plan]


def test_a_counter_that_wrapped_is_quarantined_and_a_copy_is_not(spark: SparkSession, tmp_path: Path) -> None:
    gateway = Gateway()
    first = gateway.records(counters(1, 2, 3), ACCEPTED)
    table = table_of(spark, tmp_path, first)
    again = [
        gateway.record(counters(1)[0], ACCEPTED + 8 * DAY),  # wrapped
        gateway.record(counters(2)[0], ACCEPTED + 6 * DAY),  # within the retention: a resend
        first[2],  # the same label: read again
    ]
    survivors = late(spark, again)
    found = lookup.find(survivors, table.rows(), Search(3))
    reused = id_reuse.reused_ids(survivors, found.rows, 7 * 86400, has_equals=False)
    assert found.count == 3
    assert [(row["reason"], row["kafka_offset"]) for row in reused.collect()] == [("id_reused", 0)]


def test_a_counter_that_wrapped_within_one_batch_is_quarantined_not_dropped(spark: SparkSession) -> None:
    gateway, now = Gateway(), ACCEPTED + 30 * DAY
    backlog = [
        gateway.record(counters(1)[0], ACCEPTED),
        gateway.record(counters(2)[0], ACCEPTED),
        gateway.record(counters(1)[0], ACCEPTED + 60_000),  # a resend
        gateway.record(counters(1)[0], ACCEPTED + 8 * DAY),  # wrapped
        gateway.record(counters(1)[0], now),  # wrapped again, and not old
    ]
    read = read_records(topic(spark, backlog, appended=now)).withColumn("fresh", F.lit(False))
    survivors = read.dropDuplicates(["key"])
    counts = count_rows(survivors, ALL_LATE)
    assert counts.has_equals
    nothing = read.limit(0).withColumn("accepted", id_reuse.accepted())
    reused = id_reuse.reused_ids(survivors, nothing, 7 * 86400, has_equals=True)
    assert sorted(row["kafka_offset"] for row in reused.collect()) == [3, 4]
    assert sorted(row["kafka_offset"] for row in id_reuse.first_of_each(survivors).collect()) in ([0, 1], [1, 2])


@pytest.mark.heavy
@pytest.mark.parametrize("horizon", [None, 60_000])
def test_an_id_used_again_is_quarantined_whatever_the_state_may_see(
    spark: SparkSession, tmp_path: Path, horizon: int | None
) -> None:
    sink, gateway = sink_of(spark, tmp_path), Gateway(horizon=horizon)
    times = [ACCEPTED, ACCEPTED + 60_000, ACCEPTED + 8 * DAY, ACCEPTED + 16 * DAY]
    backlog = [gateway.record(counters(1)[0], time) for time in times]
    read = read_records(topic(spark, backlog, appended=ACCEPTED + 20 * DAY)).dropDuplicates(["key"])
    sink.write(read, COMMIT, Horizon(ACCEPTED + 20 * DAY, ACCEPTED, 3600))
    fresh = ACCEPTED + 24 * DAY
    later = read_records(topic(spark, [gateway.record(counters(1)[0], fresh)], appended=fresh, first=9))
    sink.write(later, replace(COMMIT, batch=1, starts={0: 9}, ends={0: 10}), Horizon(fresh, ACCEPTED, 3600))
    assert [row["received"].timestamp() * 1000 for row in sink._table.rows().collect()] == [ACCEPTED]
    reused = sink._quarantine_table.rows().orderBy("appended", "kafka_offset").collect()
    assert [(row["reason"], row["kafka_offset"]) for row in reused] == [("id_reused", n) for n in (2, 3, 9)]


def test_the_quarantine_takes_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    bad = [replace(record, headers=[]) for record in Gateway().records(counters(1, 2, 3))]
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    records = late(spark, bad)
    assert quarantine.put(table, records.filter("kafka_offset < 2"), replace(COMMIT, ends={0: 2})) == 2
    assert quarantine.put(table, records.filter("kafka_offset < 2"), replace(COMMIT, ends={0: 2})) == 0
    later = replace(COMMIT, claim=2, checkpoint="another", ends={0: 3})
    assert quarantine.put(table, records, later) == 1
    rows = table.rows().orderBy("kafka_offset").collect()
    assert [(row["kafka_offset"], row["reason"]) for row in rows] == [(0, "headers"), (1, "headers"), (2, "headers")]


@pytest.mark.heavy
def test_another_record_at_the_place_of_one_in_quarantine_is_quarantined_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A log that was cut and has grown again has other records at the same offsets, under the same topic id."""
    dead, live = (replace(record, headers=[]) for record in Gateway().records(counters(1, 2)))
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    told = [(dead, 1), (live, 1), (replace(live, headers=[("x", b"1")]), 1), (replace(live, key=b"k"), 1), (live, 0)]
    for number, (record, added) in enumerate(told):
        commit = replace(COMMIT, claim=number + 1, checkpoint=f"c{number}", ends={0: 1})
        assert quarantine.put(table, late(spark, [record]), commit) == added
    assert [row["kafka_offset"] for row in table.rows().collect()] == [0] * 4


@pytest.mark.heavy
def test_a_killed_batch_that_comes_again_with_other_records_at_its_places_drops_none_without_a_word(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed between its two commits, before the log was cut below it and grew again."""
    dead, live = (replace(record, headers=[]) for record in Gateway().records(counters(1, 2)))
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    commit = replace(COMMIT, ends={0: 1})
    assert quarantine.put(table, late(spark, [dead]), commit) == 1
    assert quarantine.put(table, late(spark, [dead]), commit) == 0
    with pytest.raises(StopError, match="other records than before"):
        quarantine.put(table, late(spark, [live]), commit)


@pytest.mark.heavy
def test_reading_again_in_several_batches_doubles_nothing_in_the_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = late(spark, [replace(record, headers=[]) for record in Gateway().records(counters(1, 2, 3, 4))])
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    assert quarantine.put(table, records.filter("kafka_offset < 3"), replace(COMMIT, ends={0: 3})) == 3
    for batch, added in ((0, 0), (1, 0), (2, 0), (3, 1)):
        bounds = replace(COMMIT, claim=2, checkpoint="new", batch=batch, starts={0: batch}, ends={0: batch + 1})
        assert quarantine.put(table, records.filter(f"kafka_offset = {batch}"), bounds) == added


def test_a_killed_batch_that_comes_again_with_other_bounds_leaves_each_record_somewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    bad = replace(Gateway().record(counters(5)[0], ACCEPTED), headers=[])
    gateway = Gateway()
    first, wrapped = (gateway.record(counters(1)[0], ACCEPTED + age * DAY) for age in (0, 8))
    read = read_records(topic(spark, [bad, wrapped, first]))
    # Killed after the quarantine's commit: the table never got the rest of offsets 0 and 1.
    quarantined = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    killed = replace(COMMIT, starts={0: 0}, ends={0: 2})
    assert quarantine.put(quarantined, quarantine.bad_records(read), killed) == 1
    sink = sink_of(spark, tmp_path)
    sink.write(read, replace(COMMIT, claim=2, checkpoint="new", starts={0: 0}, ends={0: 3}), ALL_LATE)
    assert [row["kafka_offset"] for row in sink._table.rows().collect()] == [2]
    rows = quarantined.rows().orderBy("kafka_offset").collect()
    assert [(row["kafka_offset"], row["reason"]) for row in rows] == [(0, "headers"), (1, "id_reused")]


def test_the_quarantine_takes_a_batch_of_very_many_partitions(spark: SparkSession, tmp_path: Path) -> None:
    records = late(spark, [replace(record, headers=[]) for record in Gateway().records(counters(1))])
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    for batch in (0, 1):
        ends = dict.fromkeys(range(1000), batch + 1)
        starts = dict.fromkeys(range(1000), 0)
        assert quarantine.put(table, records, replace(COMMIT, batch=batch, starts=starts, ends=ends)) == 1 - batch


def test_an_empty_commit_is_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    assert table.last_commit() is None
    assert table.append(spark.createDataFrame([], TABLE.schema), COMMIT) == 0
    assert table.last_commit() == COMMIT


def test_the_older_claim_ends(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    nothing = spark.createDataFrame([], TABLE.schema)
    table.append(nothing, replace(COMMIT, claim=2, batch=-1, checkpoint="younger"))
    with pytest.raises(StopError, match="another job has claimed it"):
        table.append(nothing, replace(COMMIT, batch=1 << 30))
    assert table.last_commit() == replace(COMMIT, claim=2, batch=-1, checkpoint="younger")


def test_maintenance_compacts_and_keeps_the_last_commit_findable(spark: SparkSession, tmp_path: Path) -> None:
    gateway = Gateway()
    table = table_of(spark, tmp_path, gateway.records(counters(1, 2)))
    table.append(decode(late(spark, gateway.records(counters(3, 4)))), replace(COMMIT, batch=1))
    assert not table.keep_last_commit(after_seconds=3600)
    log = tmp_path / "events" / "_delta_log"
    before = sorted(log.glob("*.json"))
    assert table.keep_last_commit(after_seconds=0)
    kept = set(log.glob("*.json")) - set(before)
    assert ['\\"kept\\":' in file.read_text() for file in kept] == [True]
    removed, added = table.compact()
    assert removed > added == 1
    table.vacuum(7 * 86400)
    assert table.last_commit() == replace(COMMIT, batch=1)
    assert sorted(row["id"] for row in table.rows().collect()) == ["1", "2", "3", "4"]


def test_maintenance_is_refused_beside_a_job_where_two_processes_do_not_exclude_one_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert all(excludes_writers(spark, path) for path in (str(tmp_path), "abfs://a@b/t", "gs://b/t"))
    assert not any(excludes_writers(spark, f"{scheme}://b/t") for scheme in ("s3", "s3a", "s3n"))
    # Before anything is asked of the file system, which this session does not have.
    with pytest.raises(StopError, match="--job-is-stopped"):
        maintenance.maintain_folders(spark, maintenance.parse(["--table", "s3a://b/t"]))


@pytest.mark.heavy
def test_the_log_forgets_all_but_the_last_hours_and_never_the_last_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [])
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/events` SET TBLPROPERTIES ('delta.checkpointInterval' = '4')")
    nothing = spark.createDataFrame([], TABLE.schema)
    for batch in range(1, 7):
        table.append(nothing, replace(COMMIT, batch=batch))
    log = tmp_path / "events" / "_delta_log"
    for age, file in enumerate(sorted(log.glob("*.json"), reverse=True)):
        moment = time.time() - age * 3 * 3600
        os.utime(file, (moment, moment))
    before = len(list(log.glob("*.json")))
    table.clean_log()
    kept = sorted(int(file.stem) for file in log.glob("*.json"))
    assert len(kept) < before
    assert kept[-3:] == list(range(kept[-1] - 2, kept[-1] + 1))
    assert DeltaTable(spark, str(tmp_path / "events"), TABLE).last_commit() == replace(COMMIT, batch=6)
    assert table.append(nothing, replace(COMMIT, batch=7)) == 0


def test_a_property_that_the_tables_owner_has_set_stays(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "events")
    DeltaTable(spark, folder, TABLE)
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
    DeltaTable(spark, folder, TABLE)
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").collect()[0]["properties"]
    assert properties == {**TABLE.properties, "delta.checkpointInterval": "7"}


def test_a_commit_beside_a_kept_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, Gateway().records(counters(1)))
    nothing = spark.createDataFrame([], TABLE.schema)
    younger = replace(COMMIT, batch=1)
    table.append(nothing, younger)
    kept = to_json(COMMIT, Kept(1, None))  # read before the younger, written after it
    append_as_another(spark, tmp_path / "events", kept)
    assert table.last_commit() == younger
    assert table.append(nothing, replace(COMMIT, batch=2)) == 0


def test_commits_of_others_are_looked_through(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, Gateway().records(counters(1, 2)))
    spark.sql(f"DELETE FROM delta.`{tmp_path}/events` WHERE id = '1'")
    assert table.last_commit() == COMMIT


def sink_of(spark: SparkSession, folder: Path) -> DeltaSink:
    tables = DeltaTable(spark, str(folder / "events"), TABLE), DeltaTable(spark, str(folder / "quarantine"), QUARANTINE)
    sink = DeltaSink(spark, *tables, Devices(spark, None), 7 * 86400)
    sink.claim(replace(COMMIT, batch=CLAIM_ONLY, ends={}))
    return sink


@pytest.mark.heavy
def test_what_a_slow_clock_let_into_the_state_is_looked_up_once_the_clock_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    now, hour = ACCEPTED, 3_600_000
    sink = sink_of(spark, tmp_path)
    told = [event._replace(time=now) for event in counters(1, 2)]

    def write(gateway: Gateway, commit: Commit, time: int, appended: int) -> Commit:
        records = read_records(topic(spark, gateway.records(told, now), appended=appended))
        sink.write(records, commit, Horizon(time, commit.birth or time, 3600))
        last = sink.last_commit()
        assert last is not None
        return last

    slow = write(Gateway(), replace(COMMIT, birth=now - 3 * hour), now - 2 * hour, now)
    assert slow.birth == now
    later = now + hour // 10
    last = write(Gateway("gw-2"), replace(slow, batch=1), later, later)
    assert last.birth == now
    assert sink._table.rows().count() == 2
