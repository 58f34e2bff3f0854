"""The procedures of docs/table.md, with a real job and a real topic."""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
import pytest
from pyspark.sql import SparkSession

from contract.event import Event
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.kafka]

PAGE = (ROOT / "docs" / "table.md").read_text()
ERASED, KEPT = "urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00158d0001a2b3c5"
Execute = Callable[[str], object]


def section(title: str) -> str:
    return PAGE.partition(f"\n### {title}\n")[2].partition("\n### ")[0]


def executing(cloud: CloudSide, spark: SparkSession) -> Execute:
    """Return what executes a statement of the page on the table of the test."""
    if cloud.postgres is None:
        return lambda text: spark.sql(text.replace("delta.`./events`", f"delta.`{cloud.place('events')}`"))

    def execute(text: str) -> None:
        assert cloud.postgres is not None
        with psycopg.connect(cloud.postgres.connection) as connection:
            connection.execute(text.replace("FROM events", f"FROM {cloud.table_name}").encode())

    return execute


def devices(cloud: CloudSide) -> list[str]:
    return sorted(row["device"] for row in cloud.rows())


def run_until(cloud: CloudSide, records: int, *options: str) -> None:
    cloud.start(*options)
    cloud.wait_for_receipts(records)
    assert cloud.stop() == 0


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_the_events_of_one_device_are_erased_and_the_job_goes_on(cloud: CloudSide, spark: SparkSession) -> None:
    gateway = Gateway()
    events: list[Event] = [*readings(10, ERASED), *readings(10, KEPT)]
    cloud.send(gateway.records(events))
    run_until(cloud, 20)

    language = "Delta" if cloud.postgres is None else "PostgreSQL"
    statement = re.search(rf"```sql\n-- {language}\n(.*?);?\n```", section("Erase the events of a device"), re.DOTALL)
    assert statement is not None
    executing(cloud, spark)(statement[1])
    assert devices(cloud) == [KEPT] * 10

    cloud.send(gateway.records(readings(5, KEPT, start=10)))
    if cloud.postgres is None:  # the job does not continue by itself after another program has removed rows
        job = cloud.start()
        assert cloud.wait_for_end(job) == 1
        assert "DELETE" in job.log()
        cloud.checkpoint = "checkpoint-2"
    run_until(cloud, 25)
    assert devices(cloud) == [KEPT] * 15


def test_a_second_table_is_filled_from_the_topic_beside_the_first(cloud: CloudSide) -> None:
    gateway = Gateway()
    cloud.send(gateway.records(readings(20)))
    run_until(cloud, 20)
    options = re.search(
        r"^oncegate-cloud job .*--group (\S+) --table (\S+) --checkpoint (\S+)$",
        section("Fill a second table"),
        re.MULTILINE,
    )
    assert options is not None
    first_group = cloud.group
    second = CloudSide(cloud.bootstrap_servers, cloud.topic, cloud.folder / "second")
    second.folder.mkdir()
    try:
        job = second.start("--group", f"{first_group}-{options[1]}")
        second.wait_for_rows(20)
        assert second.stop() == 0, job.log()
        assert second.ids() == cloud.ids()
        assert second.table_id != cloud.table_id
        assert {table for table, _ in cloud.named()} == {cloud.table_id}, "the first table's receipts are unchanged"
    finally:
        second.close()
