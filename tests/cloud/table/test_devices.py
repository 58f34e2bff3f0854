import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon, is_fresh
from cloud.table.rows import decode
from contract.event import Event
from tests.cloud.gateway import Gateway
from tests.cloud.tables import topic

pytestmark = pytest.mark.spark

KITCHEN, CELLAR = "urn:dev:mac:0000000000000001", "urn:dev:mac:0000000000000002"
CSV = f'device,name,site,tags,floor\n{KITCHEN},"Kitchen, ""north""",house,"warm,dry",2\n'


def enriched(spark: SparkSession, devices: Devices) -> list[tuple[str, str | None, str | None, str | None]]:
    records = Gateway().records([Event(KITCHEN, id=1), Event(CELLAR, id=2)])
    rows = decode(read_records(topic(spark, records)), devices.frame()).orderBy("sequence").collect()
    return [(row["device"], row["device_name"], row["site"], row["tags"]) for row in rows]


@pytest.mark.heavy
def test_what_the_file_says_stands_beside_the_event_and_nobody_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(CSV)
    devices = Devices(spark, str(file))
    known = (KITCHEN, 'Kitchen, "north"', "house", "warm,dry")
    assert enriched(spark, devices) == [known, (CELLAR, None, None, None)]

    # After a change the next batch uses it. If the file is invalid, the earlier devices stay.
    file.write_text(f"site,device\ncellar,{CELLAR}\n")
    os.utime(file, (1, 1))
    changed = [(KITCHEN, None, None, None), (CELLAR, None, "cellar", None)]
    assert enriched(spark, devices) == changed
    for broken in ("", f"device\n{CELLAR}\n{CELLAR}\n"):
        file.write_text(broken)
        assert enriched(spark, devices) == changed


def test_parquet_is_read_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    file = str(tmp_path / "devices.parquet")
    spark.createDataFrame([(CELLAR, ["wet", "dark"])], "device string, tags array<string>").write.parquet(file)
    assert enriched(spark, Devices(spark, file))[1] == (CELLAR, None, None, "wet,dark")


def test_without_a_file_the_columns_are_null(spark: SparkSession) -> None:
    assert enriched(spark, Devices(spark, None))[0] == (KITCHEN, None, None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("name,site\nx,y\n", "no column device among name, site"),
        (f"device\n{CELLAR}\n{KITCHEN}\n{CELLAR}\n", f"{CELLAR} is listed 2 times"),
    ],
)
def test_a_file_that_cannot_serve_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "devices.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(StopError, match=message):
        Devices(spark, str(file))


BIRTH = 1_700_000_000_000
MINUTE = 60_000
BATCH_TIME = BIRTH + 60 * MINUTE
SCHEMA = "bound timestamp, received timestamp, appended timestamp, clock string, shared string"
HORIZON = Horizon(BATCH_TIME, BIRTH, window_seconds=40 * 60)  # skew: 10 minutes


@dataclass(frozen=True, slots=True)
class Case:
    bound: int | None = BATCH_TIME - MINUTE
    received: int = BATCH_TIME - MINUTE
    appended: int = BATCH_TIME
    clock: str | None = "trusted"
    shared: str = "time"


CASES = {
    "a minute ago": (Case(), True),
    "clock not trusted": (Case(clock="untrusted"), False),
    "a record that is not well-formed": (Case(bound=None, clock=None), False),
    "no clock beside moments": (Case(clock=None), False),
    "its day is its label's": (Case(shared="label"), True),
    "an id without a time": (Case(shared="none"), False),
    "bound unknown": (Case(bound=None), False),
    "bound just inside the window": (Case(bound=BATCH_TIME - 30 * MINUTE + 1), True),
    "bound just outside": (Case(bound=BATCH_TIME - 30 * MINUTE), False),
    "bound as far ahead as a clock may be": (Case(bound=BATCH_TIME + 10 * MINUTE, received=BATCH_TIME), True),
    "bound further ahead": (Case(bound=BATCH_TIME + 10 * MINUTE + 1, received=BATCH_TIME + MINUTE), False),
    "bound as far ahead of its acceptance as a clock may be": (Case(bound=BATCH_TIME - MINUTE + 10 * MINUTE), True),
    "bound further ahead of its acceptance": (Case(bound=BATCH_TIME - MINUTE + 10 * MINUTE + 1), False),
    "accepted after its append by more than a skew": (Case(received=BATCH_TIME + 10 * MINUTE + 1), False),
    "accepted after its append by a skew": (Case(received=BATCH_TIME + 10 * MINUTE), True),
    "appended just before this batch can have been read": (Case(appended=BATCH_TIME + 10 * MINUTE - 1), True),
    "appended after that: the driver's clock is behind": (Case(appended=BATCH_TIME + 10 * MINUTE), False),
    "bound before 1970": (Case(bound=-1), False),
}


def judge(spark: SparkSession, horizon: Horizon, cases: list[Case]) -> list[bool]:
    rows = [
        (place, None if case.bound is None else at(case.bound), at(case.received), at(case.appended), *said(case))
        for place, case in enumerate(cases)
    ]
    frame = spark.createDataFrame(rows, f"place int, {SCHEMA}").withColumn("fresh", is_fresh(horizon))
    return [row["fresh"] for row in frame.orderBy("place").collect()]


def said(case: Case) -> tuple[str | None, str]:
    return case.clock, case.shared


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@pytest.mark.guarantee(5)
def test_fresh_is_what_the_state_must_have_seen(spark: SparkSession) -> None:
    judged = judge(spark, HORIZON, [case for case, _ in CASES.values()])
    assert dict(zip(CASES, judged, strict=True)) == {name: fresh for name, (_, fresh) in CASES.items()}


@pytest.mark.guarantee(5)
def test_what_may_be_older_than_the_state_is_late(spark: SparkSession) -> None:
    young = Horizon(BATCH_TIME, BATCH_TIME - 15 * MINUTE, HORIZON.window_seconds)
    edge = young.birth_ms + young.skew_ms
    assert judge(spark, young, [Case(bound=edge), Case(bound=edge - 1)]) == [True, False]


def test_a_batch_that_overlaps_is_late_as_a_whole(spark: SparkSession) -> None:
    overlapping = Horizon(BATCH_TIME, BIRTH, HORIZON.window_seconds, overlaps=True)
    assert judge(spark, overlapping, [Case()]) == [False]


def test_spark_compiles_the_same_code_in_every_batch(spark: SparkSession) -> None:
    cases = spark.createDataFrame([], SCHEMA)

    def code(horizon: Horizon) -> list[str]:
        judged = cases.select("clock", "shared", is_fresh(horizon).alias("fresh"))
        gateway: Any = spark.sparkContext
        text = str(gateway._jvm.PythonSQLUtils.explainString(judged._jdf.queryExecution(), "codegen"))
        return [line for line in text.splitlines() if line.startswith("/* ")]

    assert code(HORIZON)
    assert code(HORIZON) == code(replace(HORIZON, batch_time_ms=BATCH_TIME + MINUTE, birth_ms=BIRTH + MINUTE))
