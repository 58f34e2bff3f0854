"""The quarantine of a Delta table: each bad record once."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.delta.sink import QUARANTINE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table import quarantine
from cloud.table.sink import Written
from tests.cloud.gateway import Gateway
from tests.cloud.tables import (
    ACCEPTED,
    ALL_LATE,
    COMMIT,
    DAY,
    age_log,
    append_as_another,
    counters,
    late,
    sink_of,
    topic,
)

pytestmark = pytest.mark.spark


@pytest.mark.heavy
def test_a_killed_batch_that_comes_again_with_other_records_at_its_places_drops_none_without_a_word(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed between its two commits, before the log was truncated below it and grew again."""
    dead, live = (replace(record, headers=[]) for record in Gateway().records(counters(1, 2)))
    table = DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    commit = replace(COMMIT, ends={0: 1})
    assert quarantine.put(table, late(spark, [dead]), commit) == 1
    assert quarantine.put(table, late(spark, [dead]), commit) == 0
    with pytest.raises(StopError, match=r"other records than before.*truncated.*--retention.*another copy"):
        quarantine.put(table, late(spark, [live]), commit)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_killed_batch_that_comes_again_days_later_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Killed between its two commits; others write to it, and maintain it, before the job starts again."""
    folder = tmp_path / "quarantine"
    records = late(spark, [replace(record, headers=[]) for record in Gateway().records(counters(1, 2))])
    killed = replace(COMMIT, ends={0: 1})
    assert quarantine.put(DeltaTable(spark, str(folder), QUARANTINE), records.filter("kafka_offset = 0"), killed) == 1
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    age_log(folder, 2 * 86_400)
    for _ in range(2):
        append_as_another(spark, folder, layout=QUARANTINE)
    maintained = DeltaTable(spark, str(folder), QUARANTINE)
    maintained.compact()
    maintained.vacuum(7 * 86_400)
    table = DeltaTable(spark, str(folder), QUARANTINE)
    assert quarantine.put(table, records.filter("kafka_offset = 0"), killed) == 0
    assert quarantine.put(table, records, replace(COMMIT, batch=1, ends={0: 2})) == 1
    assert sorted(row["kafka_offset"] for row in table.rows().collect()) == [0, 1]


@pytest.mark.guarantee(5)
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


@pytest.mark.heavy
@pytest.mark.guarantee(5)
def test_a_killed_batch_that_comes_again_with_other_bounds_leaves_each_record_somewhere(
    spark: SparkSession, tmp_path: Path, gateway: Gateway
) -> None:
    bad = replace(Gateway().record(counters(5)[0], ACCEPTED), headers=[])
    first, wrapped = (gateway.record(counters(1)[0], ACCEPTED + age * DAY) for age in (0, 8))
    read = read_records(topic(spark, [bad, wrapped, first]))
    # Killed after the quarantine's commit: the table never received the rest of offsets 0 and 1.
    quarantined = DeltaTable(spark, str(tmp_path / "events_quarantine"), QUARANTINE)
    killed = replace(COMMIT, starts={0: 0}, ends={0: 2})
    assert quarantine.put(quarantined, read.filter("reason IS NOT NULL"), killed) == 1
    sink = sink_of(spark, tmp_path)
    written = sink.write(read, replace(COMMIT, claim=2, checkpoint="new", starts={0: 0}, ends={0: 3}), ALL_LATE)
    assert replace(written, ahead=None) == Written(rows=1, late=2, bad=2, found=0)
    assert [row["kafka_offset"] for row in sink._table.rows().collect()] == [2]
    rows = quarantined.rows().orderBy("kafka_offset").collect()
    assert [(row["kafka_offset"], row["reason"]) for row in rows] == [(0, "headers"), (1, "id_reused")]
