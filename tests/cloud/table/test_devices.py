from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.stream.records import read_records
from cloud.table.devices import Devices
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
