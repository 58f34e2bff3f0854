from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.stream.records import read_records
from cloud.table import lookup
from cloud.table.commits import Commit
from cloud.table.freshness import Horizon
from cloud.table.lookup import count_rows
from cloud.table.rows import decode
from contract.event import Event
from tests.cloud.gateway import Gateway
from tests.cloud.tables import ACCEPTED, ALL_LATE, COMMIT, DAY, DEVICE, counters, late, sink_of, table_of, topic

pytestmark = pytest.mark.spark


@pytest.mark.heavy
def test_the_shared_days_suffice_where_there_are_some(spark: SparkSession, tmp_path: Path) -> None:
    events = [replace(event, time=ACCEPTED) for event in counters(1, 2)]
    table = table_of(spark, tmp_path, Gateway().records(events, ACCEPTED + DAY))
    survivors = late(spark, Gateway("gw-2").records([*events, Event(DEVICE, data={"n": 1})], ACCEPTED + 9 * DAY))
    counts = count_rows(survivors, ALL_LATE)
    assert counts.search.days is not None
    assert set(counts.search.days) == {date(2023, 11, 14), date(2023, 11, 23)}
    assert lookup.find(survivors, table.rows(), counts.search).count == 2


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(("first", "later"), [(0, 400 * DAY), (400 * DAY, 0)])
def test_a_copy_is_found_whether_or_not_its_day_is_a_partition(
    spark: SparkSession, tmp_path: Path, first: int, later: int
) -> None:
    events = [replace(event, time=ACCEPTED) for event in counters(1, 2)]
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    for end in (first, later):
        records = read_records(topic(spark, Gateway().records(events, ACCEPTED), ACCEPTED + end))
        survivors = records.withColumn("fresh", F.lit(False))
        found = lookup.find(survivors, table.rows(), count_rows(survivors, ALL_LATE).search)
        assert found.count == (0 if end == first else 2)
        table.append(decode(survivors), replace(COMMIT, batch=int(end != first)))
    assert table.rows().select("day").distinct().count() == 2


@pytest.mark.guarantee(5)
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
        if number != 3:  # reading the other files fails
            for file in set((tmp_path / "events").glob("day=*/*.parquet")) - before:
                file.unlink()
    survivors = frames[3].withColumn("fresh", F.lit(False))
    assert lookup.find(survivors, table.rows(), count_rows(survivors, ALL_LATE).search).count == 1


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize("is_there", [False, True])
def test_a_look_up_of_an_id_without_a_time_reads_no_row_group_that_lacks_it(
    spark: SparkSession, tmp_path: Path, is_there: bool
) -> None:
    table, gateway = DeltaTable(spark, str(tmp_path / "events"), TABLE), Gateway()
    for batch in range(2):  # more fingerprints than a dictionary holds
        fingerprint = F.expr(f"unhex(md5('{batch}-' || id))").alias("fingerprint")
        moments = F.current_timestamp().alias("received"), F.to_date(F.lit("2026-01-01")).alias("day")
        many = spark.range(100_000).select(fingerprint, *moments)
        table.append(many.coalesce(1), replace(COMMIT, batch=batch))
    records = gateway.records(counters(1), ACCEPTED)
    if is_there:
        table.append(decode(late(spark, records)), replace(COMMIT, batch=2))
    survivors = late(spark, records)
    rows = lookup.sought(survivors, table.rows(), count_rows(survivors, ALL_LATE).search)
    assert rows.count() == is_there
    assert rows_read(rows) == is_there


def rows_read(frame: DataFrame) -> int:
    """Run a query, and count the rows that its scan of files returns."""
    frame.collect()
    plan: Any = frame._jdf.queryExecution().executedPlan()
    [scan] = [node for node in leaves(plan) if node.metrics().contains("numFiles")]
    return int(scan.metrics().apply("numOutputRows").value())


def leaves(plan: Any) -> list[Any]:
    inner = [plan.executedPlan()] if plan.nodeName().startswith("AdaptiveSparkPlan") else []
    children = inner + [plan.children().apply(place) for place in range(plan.children().size())]
    return [leaf for child in children for leaf in leaves(child)] if children else [plan]


@pytest.mark.guarantee(5)
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


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_a_slow_clock_let_into_the_state_is_looked_up_once_the_clock_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    now, hour = ACCEPTED, 3_600_000
    sink = sink_of(spark, tmp_path)
    told = [replace(event, time=now) for event in counters(1, 2)]

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
