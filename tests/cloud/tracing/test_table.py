"""What the command `trace` asks the table, in the words of both databases."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from cloud import sinks
from cloud.delta.sink import QUARANTINE
from cloud.delta.table import DeltaTable
from cloud.postgres.statements import Statements
from cloud.query import QuerySettings, ask_postgres, ask_spark
from cloud.sinks import Tables
from cloud.tracing.facts import EpochFacts, Gap, Label, Record, Span, Wanted
from cloud.tracing.table import POSTGRES, SPARK, TracedTable
from tests.cloud.made_rows import NOON, THERMOMETER, create_table, row, write_table

EPOCH, NEXT = "00000000000000a1", "00000000000000a2"
HOSTILE = "gw-'; DROP TABLE events; --\\é"
MILLISECONDS = int(NOON.timestamp() * 1000)
LOSS = {"labels": [["00000000000000a0", 1, 9], [EPOCH, 5, 6, "newer"]], "count": 2, "reason": "damage"}
START = {"previous_epoch": EPOCH, "previous_sequence": 9}
OWN = {"via": "gateway", "gateway": HOSTILE}
ROWS = [
    row(1, 0, THERMOMETER, "{}", id="7", kafka_partition=0, kafka_offset=3),
    row(2, 10, THERMOMETER, "{}", kafka_partition=0, kafka_offset=4, gateway=HOSTILE),
    row(3, 20, "urn:other", "{}", kafka_partition=0, kafka_offset=5),
    row(4, 30, "urn:g", json.dumps(LOSS), type="gateway.gap", kafka_partition=0, kafka_offset=6, **OWN),
    row(5, 31, "urn:g", json.dumps(START), type="gateway.started", kafka_partition=0, kafka_offset=7, **OWN)
    | {"epoch": NEXT},
    *(
        row(6 + number, 32, "urn:g", data, type=type_, kafka_partition=0, kafka_offset=8 + number, **OWN)
        | {"epoch": f"{number:016x}"}
        for number, (type_, data) in enumerate(
            [
                *((type_, data) for type_ in ("gateway.gap", "gateway.started") for data in ("{", "[]", "null")),
                ("gateway.gap", json.dumps({"labels": [5, [EPOCH], [EPOCH, "1", 1e30]]})),
                ("gateway.started", json.dumps({"previous_epoch": EPOCH, "previous_sequence": "many"})),
            ]
        )
    ),
]
BAD = '{"fingerprint":"' + "ab" * 16 + '","gateway":"gw-1","epoch":"' + EPOCH + '","sequence":17,"x"'
OF_HOSTILE = Label(HOSTILE, EPOCH, 2)


@pytest.fixture
def in_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> TracedTable:
    server = request.getfixturevalue("postgres")
    name, file = f"t{uuid4().hex}", tmp_path / "connection"
    with psycopg.connect(server.connection) as connection:
        create_table(connection, name, ROWS)
        connection.execute(Statements(name, f"{name}_q").create_quarantine)
        insert = f"INSERT INTO {name}_q VALUES ('T', 'events', 0, 8, 'value', %s, %s, NULL, %s, %s, '')"
        connection.execute(insert.encode(), [THERMOMETER.encode(), BAD.encode(), NOON, NOON])
    server.write_connection(file)
    settings = QuerySettings(Tables(sinks.POSTGRES, name, f"{name}_q", file), "", "json", 100)
    return TracedTable(lambda statement: ask_postgres(None, replace(settings, statement=statement)), POSTGRES, "")


@pytest.fixture
def in_delta(request: pytest.FixtureRequest, tmp_path: Path) -> TracedTable:
    spark = request.getfixturevalue("spark")
    write_table(spark, ROWS, tmp_path / "events")
    DeltaTable(spark, str(tmp_path / "quarantine"), QUARANTINE)
    bad = [("T", "events", 0, 8, "value", THERMOMETER.encode(), BAD.encode(), None, NOON, NOON)]
    spark.createDataFrame(bad, QUARANTINE.schema).write.format("delta").mode("append").save(f"{tmp_path}/quarantine")
    tables = Tables(sinks.DELTA, str(tmp_path / "events"), str(tmp_path / "quarantine"))
    settings = QuerySettings(tables, "", "json", 100)
    session = spark.newSession()
    return TracedTable(lambda statement: ask_spark(session, replace(settings, statement=statement)), SPARK, "")


@pytest.fixture(params=["in_postgres", pytest.param("in_delta", marks=[pytest.mark.spark, pytest.mark.heavy])])
def table(request: pytest.FixtureRequest) -> TracedTable:
    made: TracedTable = request.getfixturevalue(request.param)
    return made


def test_the_table_is_asked_by_fingerprint_label_and_device(table: TracedTable) -> None:
    [first] = table.rows(Wanted(ROWS[0]["fingerprint"].hex()))
    assert (first.label, first.id, first.time, first.offset) == (Label("gw-1", EPOCH, 1), "7", MILLISECONDS, 3)
    assert [one.offset for one in table.rows(Wanted(label=OF_HOSTILE))] == [4]
    assert table.rows_of([]) == table.rows(Wanted("ff" * 16)) == []
    ten_minutes = 600_000
    for until, offsets in ((MILLISECONDS + ten_minutes, [3]), (None, [3, 4])):
        assert [one.offset for one in table.rows_within(Span(THERMOMETER, MILLISECONDS, until))] == offsets


def test_gaps_and_ends_of_an_epoch_are_those_that_its_gateway_has_stated(table: TracedTable) -> None:
    assert table.gaps(Label(HOSTILE, EPOCH, 6)) == [Gap("damage", MILLISECONDS + 30 * 60_000, 5, 6)]
    assert table.gaps(Label(HOSTILE, EPOCH, 7)) == table.gaps(Label("gw-1", EPOCH, 6)) == []
    assert table.epoch(OF_HOSTILE) == EpochFacts(4, 9, True)
    assert table.epoch(Label("gw-9", EPOCH, 2)) == EpochFacts(None, None, False)


def test_a_record_in_quarantine_is_found_by_its_value_its_place_and_its_device(table: TracedTable) -> None:
    asked: list[Callable[[], object]] = [
        lambda: table.quarantined(Wanted("ab" * 16), [], "T"),
        lambda: table.quarantined(Wanted(label=Label("gw-1", EPOCH, 17)), [], "T"),
        lambda: table.quarantined(Wanted("cd" * 16), [Record(0, 8, 0, "", None, None, None)], "T"),
        lambda: table.quarantined_within(Span(THERMOMETER, MILLISECONDS, None)),
    ]
    found = [ask() for ask in asked]
    assert all(one == found[0] for one in found)
    [one] = table.quarantined(Wanted("ab" * 16), [], "T")
    assert (one.partition, one.offset, one.reason, one.at) == (0, 8, "value", MILLISECONDS)
    assert table.quarantined(Wanted("cd" * 16), [Record(0, 8, 0, "", None, None, None)], "U") == []
    assert table.quarantined(Wanted(label=Label("gw-1", EPOCH, 1)), [], "T") == []
