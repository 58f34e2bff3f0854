"""The queries of docs/table.md have the same answers in Spark, DuckDB and PostgreSQL, on the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from agent.store.gateway_events import GatewayCondition
from cloud.table import corrected, fleet, readings, rows
from simulators.services.postgres import Postgres
from tests.cloud.made_rows import METER, NOON, THERMOMETER, Row, create_table, row, write_table
from tests.docs.pages import ROOT

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "table.md").read_text()


def section(title: str) -> str:
    """Return what the page has under a heading of the second level."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


QUERIES = dict(re.findall(r"^### (.+?)\n.*?```sql\n(.*?)```", section("Queries"), re.DOTALL | re.MULTILINE))
VIEWS: dict[str, str] = {}
"""The statements that create the views, by language."""
for _language, _view in re.findall(
    r"```sql\n-- (\w+)\n(.*?)```", section("Readings") + section("Corrected times") + section("The fleet"), re.DOTALL
):
    VIEWS[_language] = VIEWS.get(_language, "") + _view

GATEWAY_1, GATEWAY_2, GATEWAY_3 = (f"urn:oncegate:gateway:gw-{number}" for number in (1, 2, 3))
NAMELESS = "urn:dev:mac:00158d0001a2b3c7"
CORRECTION = '{"epoch":"00000000000000b2","first":1,"last":1,"correction_ms":-3600000}'
"""Declared twice, as by a gateway and by a restored copy of it."""
Answer = list[tuple[Any, ...]]
Ask = Callable[[str], Answer]


def stated(new_events: int, written_bytes: int) -> str:
    """Return the data of an event that begins a section."""
    return json.dumps(GatewayCondition("0.1.0", new_events, written_bytes).entries())


def table() -> list[Row]:
    late = NOON + timedelta(hours=5)
    second = {"gateway": "gw-2", "epoch": "00000000000000b2"}
    third = {"gateway": "gw-3", "epoch": "00000000000000c3"}
    return [
        row(1, -1, GATEWAY_1, stated(0, 10**9), type="gateway.started", via="gateway"),
        row(2, 0, THERMOMETER, '{"temperature":21.5}', units='{"temperature":"Cel"}', event_time=NOON),
        row(3, 10, THERMOMETER, '{"temperature":22.0,"odd \\"name\\"":true}'),
        row(4, 70, THERMOMETER, '{"temperature":19}', possible_duplicate_of=(2).to_bytes(16)),
        row(5, 5, METER, '{"energy":100.125}'),
        row(7, 55, METER, '{"energy":101.5}', units='{"energy":"kWh"}'),
        row(8, 65, METER, '{"energy":101.625}'),
        row(9, 29 * 60, GATEWAY_1, stated(0, 5 * 10**9), type="gateway.checkpoint", via="gateway"),
        row(1, 80, METER, '{"energy":102}', fingerprint=b"\xb1" * 16, appended=late, clock="untrusted", **second),
        row(3, 90, GATEWAY_2, '{"reason":"full","count":1}', fingerprint=b"\xb3" * 16, type="gateway.gap",
            via="gateway", **second),
        row(4, 95, GATEWAY_2, CORRECTION, fingerprint=b"\xb4" * 16, type="gateway.clock", via="gateway", **second),
        row(5, 99, GATEWAY_2, CORRECTION, fingerprint=b"\xb5" * 16, type="gateway.clock", via="gateway", **second),
        row(1, 90, NAMELESS, "{}", fingerprint=b"\xc1" * 16, clock="untrusted", **third),
        row(2, 25 * 60, GATEWAY_3, stated(20_000, 7), fingerprint=b"\xc2" * 16, type="gateway.started", via="gateway",
            **third),
    ]  # fmt: skip


HOUR = timedelta(hours=1)
ANSWERS: dict[str, Answer] = {
    "The readings of a device": [
        (NOON + timedelta(minutes=70), "temperature", "19", None),
        (NOON + timedelta(minutes=10), 'odd "name"', "true", None),
        (NOON + timedelta(minutes=10), "temperature", "22.0", None),
        (NOON, "temperature", "21.5", "Cel"),
    ],
    "The last event of each device": [
        (THERMOMETER, NOON + timedelta(minutes=70), 3),
        (METER, NOON + timedelta(minutes=80), 4),
        (NAMELESS, NOON + timedelta(minutes=90), 1),
    ],
    "Hourly averages": [(THERMOMETER, NOON, Decimal("21.75")), (THERMOMETER, NOON + HOUR, Decimal(19))],
    "Energy per hour": [(METER, NOON, Decimal("1.375")), (METER, NOON + HOUR, Decimal("0.375"))],
    "Events that arrived late": [("gw-2", 1, timedelta(minutes=220))],
    "Gaps by gateway": [("gw-2", NOON + timedelta(minutes=90), '{"reason":"full","count":1}')],
    "Labels without a row": [
        ("gw-1", "00000000000000a1", 1),
        ("gw-2", "00000000000000b2", 1),
        ("gw-3", "00000000000000c3", 0),
    ],
    "Possible duplicates": [(THERMOMETER, NOON + timedelta(minutes=70), NOON)],
    "Gateways with a wrong clock": [
        ("gw-2", 1, NOON + timedelta(minutes=80)),
        ("gw-3", 1, NOON + timedelta(minutes=90)),
    ],
    "When events under a wrong clock were accepted": [
        ("gw-2", 1, NOON + timedelta(minutes=80), NOON + timedelta(minutes=20)),
        ("gw-3", 1, NOON + timedelta(minutes=90), None),
    ],
    "From the sensor to the table": [("gw-1", timedelta(seconds=5), 6)],
    "Gateways by health": [("behind", 1), ("healthy", 1), ("silent", 1)],
    "Losses by reason": [("full", 1, 1, NOON + timedelta(minutes=90, seconds=1))],
    "Gateways with a backlog": [("gw-3", 20_000, timedelta(seconds=1), NOON + timedelta(hours=25, seconds=1))],
    "Versions of the agent": [
        ("0.1.0", 2, NOON + timedelta(hours=25, seconds=1)),
        ("unknown", 1, NOON + timedelta(minutes=99, seconds=1)),
    ],
    "Clocks that were wrong": [("gw-2", 2, 3_600)],
    "Cards that wear out first": [("gw-1", 5 * 10**9, Decimal("3308.4"), 6)],
}


@pytest.fixture(scope="module")
def delta(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Delta table with the rows."""
    return write_table(spark, table(), tmp_path_factory.mktemp("table") / "events")


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, delta: Path) -> Ask:
    spark.read.format("delta").load(str(delta)).createOrReplaceTempView("events")
    spark.sql(readings.SPARK_VIEW)
    spark.sql(corrected.SPARK_VIEW)
    for view in fleet.SPARK_VIEWS:
        spark.sql(view)
    return lambda query: [tuple(one) for one in spark.sql(query).collect()]


@pytest.fixture(scope="module")
def in_duckdb(delta: Path) -> Iterator[Ask]:
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(delta)).file_uris()]
    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        scan = f"read_parquet({files!r}, hive_partitioning = true)"
        connection.execute(
            re.sub(r"CREATE VIEW quarantine.*\n", "", VIEWS["DuckDB"]).replace("delta_scan('./events')", scan)
        )
        yield lambda query: connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def in_postgres(postgres: Postgres) -> Iterator[Ask]:
    name = f"q{uuid4().hex}"
    with psycopg.connect(postgres.connection, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}; SET search_path TO {name}; SET timezone TO 'UTC'".encode())
        create_table(connection, "events", table())
        connection.execute(VIEWS["PostgreSQL"].encode())
        yield lambda query: connection.execute(query.encode()).fetchall()


def plain(value: object) -> object:
    """Return a value in the form of the expected ones: with a time zone, numbers as such."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, float):
        return Decimal(str(value))
    return value.isoformat() if type(value) is date else value


def test_the_page_has_seventeen_queries_and_each_has_an_answer() -> None:
    assert list(QUERIES) == list(ANSWERS)
    assert len(QUERIES) == 17


def test_the_command_query_has_the_views_of_the_fleet_as_on_the_page() -> None:
    built_in = ";".join(fleet.POSTGRES_VIEWS).replace("TEMPORARY ", "") + ";"
    assert "".join(built_in.split()) in "".join(VIEWS["PostgreSQL"].split())


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("engine", ["in_spark", "in_duckdb", "in_postgres"])
@pytest.mark.parametrize("title", QUERIES)
def test_a_query_has_its_answer(engine: str, title: str, request: pytest.FixtureRequest) -> None:
    ask: Ask = request.getfixturevalue(engine)
    found = [tuple(map(plain, one)) for one in ask(QUERIES[title])]
    assert found == ANSWERS[title]


def test_the_columns_of_the_page_are_those_of_the_table() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Columns"), re.MULTILINE))
    assert shown == {name: kind.simpleString() for name, kind in rows.COLUMNS.items()}
