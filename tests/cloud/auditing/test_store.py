"""The tables of an audit's results."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.audit import check_output
from cloud.auditing import account
from cloud.auditing.settings import parse
from cloud.auditing.store import Series, Store, TopicSpan
from cloud.auditing.table import TableView, read_table
from cloud.delta.sink import QUARANTINE, TABLE
from cloud.delta.table import DeltaTable
from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY
from cloud.table.rows import decode
from contract.event import Event, gateway_device
from simulators.services.postgres import Postgres
from tests.cloud.auditing.test_leaves import EVENTS as LEAVES
from tests.cloud.gateway import Gateway, Record
from tests.cloud.tables import ALL_LATE, COMMIT, SinkSide, topic

pytestmark = pytest.mark.spark

RANGES = "gateway string, epoch string, status string, first bigint, last bigint, since timestamp, state string"
SECTIONS = "gateway string, epoch string, first bigint, last bigint, digest string, signed boolean, status string"
JUDGED = (
    "gateway string, epoch string, sequence bigint, fingerprint string, kafka_partition int, kafka_offset bigint, "
    "of_gateway string, of_epoch string, of_sequence bigint, of_kafka_partition int, of_kafka_offset bigint, "
    "status string, leaf binary, row_leaf binary, appended timestamp, device string, content string"
)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
REPLACED = ("unwritten", "ranges", "sections", "offsets")


@pytest.mark.parametrize(
    ("output", "refused"), [("t", True), ("t/audit", True), ("t_quarantine/a", True), ("ta", False)]
)
def test_an_output_within_a_table_is_refused(spark: SparkSession, tmp_path: Path, output: str, refused: bool) -> None:
    folders = ("--table", f"{tmp_path}/t/", "--output", f"file://{tmp_path}/{output}")
    settings = parse(["--bootstrap-servers", "localhost:9", *folders])
    with pytest.raises(StopError, match="within") if refused else nullcontext():
        check_output(spark, settings)


@pytest.mark.heavy
def test_an_audit_goes_on_in_the_folder_of_an_older_and_of_a_newer_release(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    lacking = (("sections", ["signed"]), ("offsets", ["audits", "since"]), ("duplicates", ["fingerprint"]))
    for name, columns in lacking:
        older = spark.read.format("delta").load(f"{tmp_path}/audit_{name}").drop(*columns)
        older.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(f"{tmp_path}/audit_{name}")
    stated = spark.createDataFrame([("gw-1", "e", 1, 2, "d", False, "verified")], SECTIONS).drop("signed")
    stated.write.format("delta").mode("append").save(f"{tmp_path}/audit_sections")
    [row] = store.statements().collect()
    assert (row["digest"], row["signed"]) == ("d", False)  # nobody has signed it
    assert store.series(NOON) == Series(1, NOON)
    for folder in tmp_path.glob("audit_*"):
        spark.sql(f"ALTER TABLE delta.`{folder}` ADD COLUMNS (newer string)")
    copy = ("gw-2", "e", 1, "ff", 0, 1, "gw-1", "e", 1, 0, 0, "duplicate", b"l", None, NOON, "urn:a", "{}")
    late = ("gw-1", "e", 2, "ee", 0, 2, None, None, None, None, None, "unwritten", b"l", b"r", NOON, "urn:a", "{}")
    statuses = enumerate(("accepted", "newer", "missing"), 1)
    said = [("gw-1", "e", status, at, at, NOON, "open") for at, status in statuses]
    ranges = spark.createDataFrame(said, RANGES)
    judged = spark.createDataFrame([copy, late], JUDGED)
    store.keep(ranges, judged, spark.createDataFrame([], SECTIONS), TopicSpan("t", {0: 0}, {0: 3}, 0), Series(1, NOON))
    again = Store(spark, str(tmp_path))
    assert again.series(NOON) == Series(2, NOON)
    assert [(row["gateway"], row["fingerprint"]) for row in again.read("duplicates").collect()] == [("gw-2", "ff")]
    [later] = again.unwritten(TopicSpan("t", {0: 3}, {0: 3}, 0)).collect()
    assert (later["sequence"], bytes(later["row_leaf"])) == (2, b"r")
    known, _ = again.ranges(spark.createDataFrame([], "gateway string, epoch string, sequence bigint"))
    assert {row["status"] for row in known.collect()} == {"accepted", "newer"}  # no label of a newer status is missing
    assert "newer" not in again.read("duplicates").columns


@pytest.mark.heavy
def test_files_that_later_audits_have_replaced_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path))
    for name in REPLACED:  # instead of a week
        spark.sql(
            f"ALTER TABLE delta.`{tmp_path}/audit_{name}` "
            "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        )
    judged = spark.createDataFrame([], JUDGED)
    for end in (1, 2):
        ranges = spark.createDataFrame([("gw-1", "e", "accepted", 1, end, None, "open")], RANGES).coalesce(1)
        sections = spark.createDataFrame([("gw-1", "e", 1, end, "d", False, "verified")], SECTIONS).coalesce(1)
        series = store.series(NOON + timedelta(hours=end))
        assert series == Series(end, NOON + timedelta(hours=1))
        store.keep(ranges, judged, sections, TopicSpan("t", {0: end - 1}, {0: end}, 0), series)
    for name in REPLACED:
        live = spark.read.format("delta").load(f"{tmp_path}/audit_{name}")
        there = {file.name for file in (tmp_path / f"audit_{name}").glob("*.parquet")}
        assert there == {file.rpartition("/")[2] for file in live.inputFiles()}
    assert store.ends("t") == {0: 2}


@pytest.mark.heavy
def test_tables_whose_creation_was_killed_are_created(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("ranges", "leaves"):
        (tmp_path / f"audit_{name}" / "_delta_log").mkdir(parents=True)
    store = Store(spark, str(tmp_path))
    assert store.ends("t") == {}
    assert store.read("leaves").collect() == []
    ranges, unwritten = store.ranges(spark.createDataFrame([], "gateway string, epoch string, sequence bigint"))
    assert ranges.collect() == unwritten.collect() == []


G, ENDED, NEXT = "gw-1", "00000000000000a1", "00000000000000a2"
HOUR = 3_600_000
RECEIVED = 1_700_000_000_123
APPENDED = RECEIVED + 5 * HOUR
"""The gateway had no connection for five hours, or its clock was behind."""
EVENTS = (
    Event(gateway_device(G), "gateway.started", "e", data={"previous_epoch": ENDED, "previous_sequence": 9}),
    Event(gateway_device(G), "gateway.gap", "x", data={"labels": [[ENDED, 2, 3]], "count": 2, "reason": "damage"}),
)


def records(spark: SparkSession) -> DataFrame:
    return read_records(topic(spark, Gateway(G, NEXT).records(EVENTS, RECEIVED), APPENDED))


def view(spark: SparkSession, *options: str) -> TableView:
    return read_table(spark, parse(["--bootstrap-servers", "unused:9092", "--output", "unused", *options]).tables)


def millis(frame: DataFrame, column: str) -> list[int]:
    return [row[0] for row in frame.select(F.unix_millis(column)).collect()]


def check(found: TableView) -> None:
    """All moments of the view are those of the append."""
    assert millis(found.rows, "appended") == [APPENDED] * len(EVENTS)
    ended, gaps = account.endings(found.gateway_events), account.declared(found.gateway_events)
    assert [millis(frame, "since") for frame in (ended, gaps)] == [[APPENDED]] * 2
    assert states(account.holes(gaps.limit(0), ended)) == [account.PENDING, account.MISSING]


def states(holes: DataFrame) -> Sequence[str]:
    """Return the state of the only hole a second before and at the end of an hour of grace."""
    moments = (datetime.fromtimestamp(APPENDED // 1000 + seconds, UTC) for seconds in (3_599, 3_600))
    return [account.overdue(holes, F.lit(moment), 3_600).collect()[0]["status"] for moment in moments]


@pytest.mark.heavy
def test_what_an_epoch_lacks_may_arrive_until_the_grace_after_the_append_of_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, layout in (("events", TABLE), ("events_quarantine", QUARANTINE)):
        DeltaTable(spark, f"{tmp_path}/{name}", layout)
    decode(records(spark)).write.format("delta").mode("append").save(f"{tmp_path}/events")
    check(view(spark, "--table", f"{tmp_path}/events"))


@pytest.mark.heavy
@pytest.mark.guarantee(8)
def test_a_table_in_postgresql_is_seen_as_one_in_delta(
    spark: SparkSession, postgres: Postgres, tmp_path: Path, gateway: Gateway
) -> None:
    """Whatever the server's forms of times and bytes are; the texts of some events cannot be in PostgreSQL."""
    sent = [*gateway.records([*LEAVES, *EVENTS], RECEIVED), Record(b"k", b"", []), Record(b"k", b"\xff", [])]
    survivors, views = read_records(topic(spark, sent, APPENDED)).localCheckpoint(), []
    for server in (None, postgres):
        side = SinkSide(spark, tmp_path, server, f"t{uuid4().hex}")
        sink = side.open()
        sink.claim(replace(COMMIT, batch=CLAIM_ONLY, ends={}))
        sink.write(survivors, COMMIT, ALL_LATE)
        options = side.table().sink_options()
        if server is not None:
            with (tmp_path / "connection").open("a") as file:
                file.write(" options='-c TimeZone=Asia/Kolkata -c DateStyle=German -c bytea_output=escape'")
        views.append(view(spark, *options))
    parts = (
        (one.rows.drop("told"), one.rows.filter("sequence < 8"), one.leaves, one.quarantine, one.gateway_events)
        for one in views
    )
    for frames in zip(*parts, strict=True):
        of_delta, of_postgres = (sorted(map(str, frame.collect())) for frame in frames)
        assert of_delta == of_postgres != []
