"""The queries of docs/table.md have the same answers in Spark, DuckDB and PostgreSQL, on the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import uuid4

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from agent.store.gateway_events import GatewayCondition
from cloud import query
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
    for device in range(24):
        minutes, counter = chance.randrange(2000) - 20_000, chance.randrange(10**6)
        for _ in range(40):
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


def entries(rows: list[Row], name: str) -> Iterator[tuple[Row, datetime, Any]]:
    """Yield the measurements of a name, with their times."""
    for one in rows:
        data = json.loads(one["data"] or "{}")
        if name in data:
            yield one, one["event_time"] or one["received"], data[name]


def hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def rounded(number: Fraction, places: int) -> Decimal:
    """Return the number with so many decimals; halves away from 0."""
    return Decimal(int(abs(number) * 10**places + Fraction(1, 2)) * (-1 if number < 0 else 1)).scaleb(-places)


def exact(value: object) -> Fraction:
    """Return the decimal that JSON shows."""
    return Fraction(repr(value))


def groups(found: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the values of each key, in the order of the keys."""
    grouped: dict[Any, list[Any]] = {}
    for key, value in found:
        grouped.setdefault(key, []).append(value)
    return dict(sorted(grouped.items()))


def averages(rows: list[Row]) -> Answer:
    values = groups(((one["device"], hour(time)), exact(value)) for one, time, value in entries(rows, "temperature"))
    return [(*key, rounded(sum(some, Fraction()) / len(some), 2)) for key, some in values.items()]


def energy(rows: list[Row]) -> Answer:
    """Walk through the readings of each meter in the order of their times."""
    spent: dict[tuple[str, datetime], list[Fraction]] = {}
    known = [
        (one["device"], (time, exact(value)))
        for one, time, value in entries(rows, "energy")
        if value is not None and one["type"] == "reading" and (one["event_time"] or one["clock"] == "trusted")
    ]
    for device, steps in groups(known).items():
        for (_, before), (time, after) in pairwise(sorted(steps)):
            of = spent.setdefault((device, hour(time)), [Fraction(), Fraction()])
            of[0] += max(after - before, 0)
            of[1] += after < before
    return [(*key, rounded(kwh, 3), decreases) for key, (kwh, decreases) in sorted(spent.items())]


def of_sensors(rows: list[Row]) -> list[Row]:
    return [one for one in rows if one["via"] != "gateway"]


def acceptance(rows: list[Row], one: Row) -> datetime | None:
    """Return the time of acceptance by a clock that is right, None where it is unknown."""
    if one["clock"] == "trusted":
        return cast("datetime", one["received"])
    for clock in (json.loads(other["data"]) for other in rows if other["type"] == "gateway.clock"
                  and other["gateway"] == one["gateway"]):  # fmt: skip
        if clock["epoch"] == one["epoch"] and clock["first"] <= one["sequence"] <= clock["last"]:
            return cast("datetime", one["received"] + timedelta(milliseconds=clock["correction_ms"]))
    return None


def late(rows: list[Row]) -> Answer:
    waits = [
        (one["gateway"], one["appended"] - time)
        for one in of_sensors(rows)
        if (time := acceptance(rows, one)) and one["appended"] - time > timedelta(hours=1)
    ]
    return [(gateway, len(some), max(some)) for gateway, some in groups(waits).items()]


def without_row(rows: list[Row]) -> Answer:
    labels = groups(((one["gateway"], one["epoch"]), one["sequence"]) for one in rows)
    return [(*epoch, len(set(range(1, max(some) + 1)) - set(some))) for epoch, some in labels.items()]


def repeated(rows: list[Row]) -> Answer:
    earlier = {one["fingerprint"]: one for one in rows}
    found = [(one, earlier.get(one["possible_duplicate_of"])) for one in sorted(rows, key=itemgetter("received"))]
    return [(one["device"], one["received"], other["received"]) for one, other in found if other]


def last_events(rows: list[Row]) -> Answer:
    times = groups((one["device"], one["event_time"] or one["received"]) for one in of_sensors(rows))
    return [(device, max(some), len(some)) for device, some in times.items()]


def readings_of_a_device(rows: list[Row]) -> Answer:
    found = []
    for one in rows:
        units = json.loads(one["units"] or "{}")
        for name, value in json.loads(one["data"] or "{}").items() if one["device"] == THERMOMETER else ():
            found.append((one["event_time"] or one["received"], name, json.dumps(value), units.get(name)))
    return sorted(sorted(found, key=itemgetter(1)), key=itemgetter(0), reverse=True)[:5]


def wrong_clocks(rows: list[Row]) -> Answer:
    appended = groups((one["gateway"], one["appended"]) for one in rows if one["clock"] == "untrusted")
    return [(gateway, len(some), max(some)) for gateway, some in appended.items()]


def to_the_table(rows: list[Row]) -> Answer:
    known = [one for one in of_sensors(rows) if one["clock"] == "trusted"]
    times = groups((one["gateway"], one["processed_at"] - one["received"]) for one in known)
    return [(gateway, max(some), len(some)) for gateway, some in times.items()]


def own(rows: list[Row], *types: str) -> list[tuple[Row, dict[str, Any]]]:
    """Return the gateways' own events of these types, and their data, in the order of their appends."""
    found = sorted((one for one in rows if one["via"] == "gateway"), key=itemgetter("appended"))
    return [(one, json.loads(one["data"])) for one in found if not types or one["type"] in types]


@dataclass(frozen=True)
class Fleet:
    """What the gateways have stated, by gateway."""

    heard: dict[str, datetime]
    gaps: dict[str, list[Row]]
    states: dict[str, list[tuple[Row, dict[str, Any]]]]
    """Its starts and checkpoints, without those of lanes."""

    @classmethod
    def of(cls, rows: list[Row]) -> Fleet:
        heard = groups((one["gateway"], one["appended"]) for one, _ in own(rows))
        gaps = groups((one["gateway"], one) for one, _ in own(rows, "gateway.gap"))
        told = own(rows, "gateway.started", "gateway.checkpoint")
        states = groups((one["gateway"], (one, data)) for one, data in told if not data.get("lane"))
        return cls({gateway: max(some) for gateway, some in heard.items()}, gaps, states)


def health(rows: list[Row]) -> Answer:
    fleet, found = Fleet.of(rows), []
    newest = max(fleet.heard.values())
    for gateway, heard in fleet.heard.items():
        if gateway == "gw-retired":
            continue
        state, data = fleet.states.get(gateway, [({}, {})])[-1]
        if heard < newest - timedelta(days=1):
            found.append(("silent", 1))
        elif state.get("clock") == "untrusted":
            found.append(("clock not synchronised", 1))
        elif state and (data["new_events"] > 10_000 or state["appended"] - state["received"] > timedelta(hours=1)):
            found.append(("behind", 1))
        elif any(gap["appended"] > newest - timedelta(days=7) for gap in fleet.gaps.get(gateway, ())):
            found.append(("has lost events", 1))
        else:
            found.append(("healthy", 1))
    return [(name, len(some)) for name, some in groups(found).items()]


def backlogs(rows: list[Row]) -> Answer:
    fleet, found = Fleet.of(rows), []
    for gateway, states in fleet.states.items():
        state, data = states[-1]
        delay = state["appended"] - state["received"] if state["clock"] == "trusted" else None
        if data["new_events"]:
            found.append((gateway, data["new_events"], delay, fleet.heard[gateway]))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def versions(rows: list[Row]) -> Answer:
    fleet = Fleet.of(rows)
    latest = {gateway: states[-1][1] for gateway, states in fleet.states.items()}
    names = ("version", "settings_hash")
    told = {name: tuple(latest.get(name, {}).get(one, "unknown") for one in names) for name in fleet.heard}
    heard = groups((told[gateway], (gateway, at)) for gateway, at in fleet.heard.items())
    return [
        (*one, len(some), min(gateway for gateway, _ in some), min(at for _, at in some)) for one, some in heard.items()
    ]


def corrections(rows: list[Row]) -> Answer:
    found = groups((one["gateway"], abs(data["correction_ms"])) for one, data in own(rows, "gateway.clock"))
    answer = [(gateway, len(some), rounded(Fraction(max(some), 1000), 1)) for gateway, some in found.items()]
    return sorted(answer, key=lambda one: (-one[2], one[0]))


def losses(rows: list[Row]) -> Answer:
    found = groups((data["reason"], (one, data["count"])) for one, data in own(rows, "gateway.gap"))
    return [
        (reason, len({one["gateway"] for one, _ in some}), sum(count for _, count in some), some[-1][0]["appended"])
        for reason, some in found.items()
    ]


def wear(rows: list[Row]) -> Answer:
    found = []
    for gateway, [(first, before), *_, (last, after)] in (
        (gateway, states) for gateway, states in Fleet.of(rows).states.items() if len(states) > 1
    ):
        written, seconds = after["written_bytes"], Fraction((last["appended"] - first["appended"]).total_seconds())
        a_day = (written - before["written_bytes"]) * 86_400 / seconds
        if a_day > 0:
            found.append((a_day, gateway, written, rounded(a_day / 10**6, 1), (8 * 10**12 - written) / a_day // 365))
    return [tuple(one[1:]) for one in sorted(found, key=lambda one: (-one[0], one[1]))]


ORACLES: dict[str, Callable[[list[Row]], Answer]] = {
    "The readings of a device": readings_of_a_device,
    "The last event of each device": last_events,
    "Hourly averages": averages,
    "Energy per hour": energy,
    "Events that arrived late": late,
    "Gaps by gateway": lambda rows: sorted(
        (one["gateway"], one["received"], one["data"]) for one, _ in own(rows, "gateway.gap")
    ),
    "Labels without a row": without_row,
    "Possible duplicates": repeated,
    "Gateways with a wrong clock": wrong_clocks,
    "When events under a wrong clock were accepted": lambda rows: sorted(
        (one["gateway"], one["sequence"], one["received"], acceptance(rows, one))
        for one in of_sensors(rows) if one["clock"] == "untrusted"
    ),
    "From the sensor to the table": to_the_table,
    "Gateways by health": health,
    "Losses by reason": losses,
    "Gateways with a backlog": backlogs,
    "Versions and settings": versions,
    "Clocks that were wrong": corrections,
    "Cards that wear out first": wear,
}  # fmt: skip
"""The answer to each query by plain loops over the rows."""
ROWS = table() + noise(Random(25))


@pytest.fixture(scope="module")
def delta(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Delta table with the rows."""
    return write_table(spark, ROWS, tmp_path_factory.mktemp("table") / "events")


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
        create_table(connection, "events", ROWS)
        connection.execute(VIEWS["PostgreSQL"].encode())
        yield lambda query: connection.execute(query.encode()).fetchall()


def plain(value: object) -> object:
    """Return a value in the form of the expected ones: with a time zone, numbers as such."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, float):
        return Decimal(str(value))
    return value.isoformat() if type(value) is date else value


@pytest.mark.parametrize(("engine", "views"), [("in_spark", fleet.SPARK_VIEWS), ("in_postgres", fleet.POSTGRES_VIEWS)])
def test_retired_gateways_are_not_in_the_view_of_the_gateways(
    engine: str, views: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    ask: Ask = request.getfixturevalue(engine)
    view = fleet.without(views, query.parse(["--table", "t", "SELECT 1", "--retired", "gw-retired,gw-3"]).retired)[1]
    found = {one[0] for one in ask(f"SELECT gateway FROM ({view.partition(' AS')[2]}) judged")}
    assert found == Fleet.of(ROWS).heard.keys() - {"gw-retired", "gw-3"}
    with pytest.raises(SystemExit):
        query.parse(["--table", "t", "SELECT 1", "--retired", "gw') OR ('"])


def test_the_command_query_has_the_views_of_the_fleet_as_on_the_page() -> None:
    built_in = ";".join(fleet.POSTGRES_VIEWS).replace("TEMPORARY ", "") + ";"
    assert "".join(built_in.split()) in "".join(VIEWS["PostgreSQL"].split())


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("engine", ["in_spark", "in_duckdb", "in_postgres"])
@pytest.mark.parametrize("title", QUERIES)
def test_a_query_has_its_answer(engine: str, title: str, request: pytest.FixtureRequest) -> None:
    ask: Ask = request.getfixturevalue(engine)
    found = [tuple(map(plain, one)) for one in ask(QUERIES[title])]
    assert found == ORACLES[title](ROWS)


def test_the_columns_of_the_page_are_those_of_the_table() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Columns"), re.MULTILINE))
    assert shown == {name: kind.simpleString() for name, kind in rows.COLUMNS.items()}
