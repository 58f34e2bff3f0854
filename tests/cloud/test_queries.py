"""The queries of docs/table.md have the same answers in Spark, DuckDB and PostgreSQL, on the same rows."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from agent.store.gateway_events import GatewayCondition
from cloud import query
from cloud.table import rows, views
from simulators.services.postgres import Postgres
from tests.cloud.made_rows import METER, NOON, THERMOMETER, Row, create_table, row, write_table
from tests.docs.pages import ROOT

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "table.md").read_text()


def section(title: str) -> str:
    """Return what the page has under a heading of the second level."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


QUERIES = dict(re.findall(r"^### (.+?)\n.*?```sql\n(.*?)```", section("Queries"), re.DOTALL | re.MULTILINE))
VIEWS = {
    language: (ROOT / "docs" / "examples" / f"views-{language.lower()}.sql").read_text()
    for language in ("PostgreSQL", "DuckDB")
}
"""The statements that create the views, by language."""

GATEWAY_1, GATEWAY_2, GATEWAY_3 = (f"urn:oncegate:gateway:gw-{number}" for number in (1, 2, 3))
RETIRED = "urn:oncegate:gateway:gw-retired"
NAMELESS = "urn:dev:mac:00158d0001a2b3c7"
CORRECTION = '{"epoch":"00000000000000b2","first":1,"last":1,"correction_ms":-3600000}'
"""Declared twice, as by a gateway and by a restored copy of it."""
Answer = list[tuple[Any, ...]]
Ask = Callable[[str], Answer]


def stated(new_events: int, written_bytes: int) -> str:
    """Return the data of an event that begins a section."""
    return json.dumps(GatewayCondition("0.1.0", new_events, written_bytes, settings_hash="5e77").entries())


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
        row(1, 90, RETIRED, stated(0, 7), fingerprint=b"\xd1" * 16, type="gateway.started", via="gateway",
            gateway="gw-retired", epoch="00000000000000d4"),
        row(1, 90, NAMELESS, "{}", fingerprint=b"\xc1" * 16, clock="untrusted", **third),
        row(2, 25 * 60, GATEWAY_3, stated(20_000, 7), fingerprint=b"\xc2" * 16, type="gateway.started", via="gateway",
            **third),
    ]  # fmt: skip


OWN = ("gateway.started", "gateway.checkpoint", "gateway.gap", "gateway.clock")
SITES = 4


def noise(chance: Random) -> list[Row]:
    """Return rows of many days with what meters and gateways do: gaps, resets, wrong clocks, nulls, late events."""
    made, sequences = list[Row](), dict.fromkeys(range(SITES), 1)
    for device in range(8):
        minutes, counter = chance.randrange(2000) - 20_000, chance.randrange(10**6)
        for _ in range(25):
            minutes += chance.choice((0, 1, 7, 15, 60, 60, 200, 3000))
            is_reset = device % 3 and chance.random() < 0.05
            counter = chance.randrange(1000) if is_reset else counter + chance.randrange(2000)
            site, number = chance.randrange(SITES), len(made)
            energy = None if chance.random() < 0.1 else counter / 1000
            data: dict[str, Any] = {"energy": energy, "temperature": round(chance.gauss(9, 9)), "odd/na~me": True}
            others: Row = {"gateway": f"gw-{site + 10}", "epoch": f"{site:016x}", "sequence": sequences[site]}
            others["type"] = chance.choice((*["reading"] * 30, "alarm", *OWN))
            if others["type"] in OWN:
                others["via"], data = "gateway", statement(chance, site, number, sequences)
            sequences[site] += chance.choice((1, 1, 1, 2))
            one = row(10_000 + number, minutes, f"urn:dev:mac:{device:016x}", json.dumps(data), **others)
            made.append(one | {"received": one["received"] + timedelta(milliseconds=number)} | blurred(chance, one))
    return [one for one in made if one["appended"] < NOON + timedelta(hours=29)]


def statement(chance: Random, site: int, number: int, sequences: dict[int, int]) -> dict[str, Any]:
    """Return the data of a gateway's own event, for all types; the ranges of a gateway do not overlap."""
    first = sequences[site] - 5
    sequences[site] += 10
    data = {"version": chance.choice(("0.1.0", "0.2.0")), "new_events": chance.choice((0, 3, 20_000)), "count": 5}
    data |= {"settings_hash": chance.choice(("5e77", "d1ff"))} if site else {}
    data |= {"written_bytes": number * 10**9, "reason": chance.choice(("full", "damaged")), "epoch": f"{site:016x}"}
    data |= {"first": first, "last": first + 6, "correction_ms": -61_500 * site}
    return data | ({"lane": "fast"} if chance.random() < 0.3 else {})


def blurred(chance: Random, one: Row) -> Row:
    """Return what is other than it should be in a row."""
    odd: Row = {
        "appended": one["appended"] + timedelta(hours=chance.choice((0, 0, 0, 1, 30)), milliseconds=one["sequence"])
    }
    if chance.random() < 0.2:
        odd |= {"clock": "untrusted", "received": one["received"] + timedelta(hours=chance.randrange(-9, 9))}
    if chance.random() < 0.1:
        odd["possible_duplicate_of"] = (10_000 + chance.randrange(1500)).to_bytes(16)
    if one["via"] != "gateway" and chance.random() < 0.3:
        odd["event_time"] = one["received"] - timedelta(seconds=chance.choice((0, 60)))
    if one["via"] != "gateway" and chance.random() < 0.02:
        odd |= {"data": None, "via": None, "raw": b"{"}
    return odd


ROWS = table() + noise(Random(25))
ANSWERS: dict[str, list[list[str | None]]] = json.loads(Path(__file__).with_name("answers.json").read_text())
"""The answers to the queries for ROWS, by their titles; they were computed by plain loops over the rows."""


@pytest.fixture(scope="module")
def delta(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(spark, ROWS, tmp_path_factory.mktemp("table") / "events")


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, delta: Path) -> Ask:
    spark.read.format("delta").load(str(delta)).createOrReplaceTempView("events")
    for view in views.SPARK_VIEWS:
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


@contextmanager
def asking_postgres(postgres: Postgres, made: list[Row]) -> Iterator[Ask]:
    """Yield how a schema of its own, with a table of these rows and the page's views, is asked."""
    name = f"q{uuid4().hex}"
    with psycopg.connect(postgres.connection, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}; SET search_path TO {name}; SET timezone TO 'UTC'".encode())
        create_table(connection, "events", made)
        connection.execute(VIEWS["PostgreSQL"].encode())
        yield lambda query: connection.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def in_postgres(postgres: Postgres) -> Iterator[Ask]:
    with asking_postgres(postgres, ROWS) as ask:
        yield ask


def plain(value: object) -> str | None:
    """Return a value of an answer as text: times in UTC, numbers without trailing zeros."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, int | float | Decimal):
        return f"{Decimal(str(value)).normalize():f}"
    return None if value is None else str(value)


@pytest.mark.parametrize(("engine", "made"), [("in_spark", views.SPARK_VIEWS), ("in_postgres", views.POSTGRES_VIEWS)])
def test_retired_gateways_are_not_in_the_view_of_the_gateways(
    engine: str, made: Sequence[str], request: pytest.FixtureRequest
) -> None:
    ask: Ask = request.getfixturevalue(engine)
    view = views.without(made, query.parse(["--table", "t", "SELECT 1", "--retired", "gw-retired,gw-3"]).retired)[-1]
    found = {one[0] for one in ask(f"SELECT gateway FROM ({view.partition(' AS')[2]}) judged")}
    assert found == {one["gateway"] for one in ROWS if one["via"] == "gateway"} - {"gw-retired", "gw-3"}
    with pytest.raises(SystemExit):
        query.parse(["--table", "t", "SELECT 1", "--retired", "gw') OR ('"])


def test_the_command_query_has_the_views_of_the_fleet_as_on_the_page() -> None:
    built_in = ";".join(views.POSTGRES_VIEWS[-2:]).replace("TEMPORARY ", "") + ";"
    assert "".join(built_in.split()) in "".join(VIEWS["PostgreSQL"].split())


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("engine", ["in_spark", "in_duckdb", "in_postgres"])
@pytest.mark.parametrize("title", QUERIES)
def test_a_query_has_its_answer(engine: str, title: str, request: pytest.FixtureRequest) -> None:
    ask: Ask = request.getfixturevalue(engine)
    assert [[*map(plain, one)] for one in ask(QUERIES[title])] == ANSWERS[title]


def energy(made: list[Row]) -> Answer:
    """Walk through the readings of each meter in the order of their times."""
    meters: dict[str, list[tuple[datetime, Decimal]]] = {}
    for one in made:
        value = json.loads(one["data"] or "{}", parse_float=Decimal).get("energy")
        if value is not None and one["type"] == "reading" and (one["event_time"] or one["clock"] == "trusted"):
            meters.setdefault(one["device"], []).append((one["event_time"] or one["received"], Decimal(value)))
    hours: dict[tuple[str, datetime], list[Decimal]] = {}
    for device, counted in meters.items():
        for (_, before), (time, after) in pairwise(sorted(counted)):
            spent = hours.setdefault((device, time.replace(minute=0, second=0, microsecond=0)), [Decimal(), Decimal()])
            spent[0] += max(after - before, Decimal())
            spent[1] += after < before
    return [(*key, *spent) for key, spent in sorted(hours.items())]


@pytest.mark.parametrize("seed", range(5))
def test_the_energy_of_an_hour_is_what_its_readings_add_over_gaps_resets_and_exchanged_meters(
    postgres: Postgres, seed: int
) -> None:
    made = noise(Random(seed))
    with asking_postgres(postgres, made) as ask:
        found = [[*map(plain, one)] for one in ask(QUERIES["Energy per hour"])]
    assert found == [[*map(plain, one)] for one in energy(made)]
    assert sum(one[3] != "0" for one in found) > 1


def test_the_columns_of_the_page_are_those_of_the_table() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Columns"), re.MULTILINE))
    assert shown == {name: kind.simpleString() for name, kind in rows.COLUMNS.items()}
