"""Reused ids: how they are distinguished from duplicates, whatever a gateway's wrong clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.delta.sink import TABLE
from cloud.delta.table import DeltaTable
from cloud.stream.records import read_records
from cloud.table import id_reuse, lookup
from cloud.table.commits import Commit
from cloud.table.rows import decode
from contract.event import Event
from contract.record import ClockTrust
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import topic

pytestmark = pytest.mark.spark

DAY = 86_400_000
FIRST = 1_700_000_000_000
RETENTION_SECONDS = 7 * 86_400
EVENT = Event("urn:dev:mac:0000000000000001", id=1, data={"n": 1})
COMMIT = Commit("t", "c", 1, 0, "events", "id", {0: 0}, {0: 9}, {0: 0}, 0, 60)


def read(spark: SparkSession, record: Record, appended: int, offset: int = 0) -> DataFrame:
    records = read_records(topic(spark, [record], appended, offset), RETENTION_SECONDS)
    return records.withColumn("fresh", F.lit(False))


def record(received: int, clock: ClockTrust, gateway: str) -> Record:
    return Gateway(gateway, f"00000000000000{gateway[-1]:0>2}", clock=clock).record(EVENT, received)


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_a_clock_that_nobody_trusts_makes_no_copy_look_like_an_id_used_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(decode(read(spark, record(FIRST, ClockTrust.TRUSTED, "gw-1"), FIRST)), COMMIT)
    copy = read(spark, record(0, ClockTrust.UNTRUSTED, "gw-2"), FIRST + 60_000, 1)
    found = lookup.find(copy, table.rows(), lookup.Search(1))

    assert found.count == 1
    assert id_reuse.reused_ids(copy, found.rows, RETENTION_SECONDS, has_equals=False).isEmpty()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((FIRST, ClockTrust.TRUSTED), (FIRST + 1_000, ClockTrust.UNTRUSTED)),
        ((FIRST + 29 * DAY, ClockTrust.UNTRUSTED), (FIRST + 30 * DAY, ClockTrust.TRUSTED)),
    ],
)
def test_a_clock_that_nobody_trusts_hides_no_id_used_again(
    spark: SparkSession, tmp_path: Path, earlier: tuple[int, ClockTrust], later: tuple[int, ClockTrust]
) -> None:
    table = DeltaTable(spark, str(tmp_path / "events"), TABLE)
    table.append(decode(read(spark, record(*earlier, "gw-1"), FIRST)), COMMIT)
    again = read(spark, record(*later, "gw-2"), FIRST + 30 * DAY, 1)
    found = lookup.find(again, table.rows(), lookup.Search(1))

    reused = id_reuse.reused_ids(again, found.rows, RETENTION_SECONDS, has_equals=False)
    assert [(row["reason"], row["kafka_offset"]) for row in reused.collect()] == [("id_reused", 1)]


@pytest.mark.guarantee(5)
def test_a_clock_that_nobody_trusts_joins_no_two_events_in_the_dedups_state(spark: SparkSession) -> None:
    first = read(spark, record(FIRST, ClockTrust.TRUSTED, "gw-1"), FIRST)
    again = read(spark, record(FIRST, ClockTrust.UNTRUSTED, "gw-2"), FIRST + 30 * DAY, 1)
    copy = read(spark, record(FIRST - 900 * DAY, ClockTrust.UNTRUSTED, "gw-2"), FIRST, 2)

    assert first.union(again).dropDuplicates(["key"]).count() == 2
    assert first.union(copy).dropDuplicates(["key"]).count() == 1
