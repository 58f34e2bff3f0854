"""Rows of a table that no job has written, for its readers."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from cloud.postgres.statements import Statements
from cloud.table import rows

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
THERMOMETER, METER = "urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00158d0001a2b3c5"
Row = dict[str, Any]
STEP_MINUTES = 10


def row(number: int, minutes: int, device: str, data: str, **others: object) -> Row:
    """Return a row that was accepted so many minutes after noon, and processed 5 s after that."""
    received = NOON + timedelta(minutes=minutes)
    made: Row = dict.fromkeys(rows.COLUMNS)
    made |= {
        "fingerprint": number.to_bytes(16),
        "device": device,
        "type": "reading",
        "received": received,
        "appended": received + timedelta(seconds=1),
        "processed_at": received + timedelta(seconds=5),
        "clock": "trusted",
        "gateway": "gw-1",
        "epoch": "00000000000000a1",
        "sequence": number,
        "via": "coap",
        "data": data,
        "day": received.date(),
    }
    return made | others


def day() -> list[Row]:
    """Return a day of two thermometers and a meter, during which the gateway had no uplink for three hours."""
    chance, made, counter = Random(1), list[Row](), 4_000.0
    midnight = NOON - timedelta(hours=12)
    offline, online = midnight + timedelta(hours=9), midnight + timedelta(hours=12)
    for minutes in range(0, 24 * 60, STEP_MINUTES):
        warmth = -math.cos(minutes / 24 / 60 * 2 * math.pi)
        counter += (0.2 + 0.5 * max(0.0, warmth)) * chance.uniform(0.8, 1.2)
        data = (
            (THERMOMETER, f'{{"temperature":{20 + 2 * warmth + chance.gauss(0, 0.1):.1f}}}', '{"temperature":"Cel"}'),
            (THERMOMETER[:-1] + "6", f'{{"temperature":{9 + 6 * warmth + chance.gauss(0, 0.2):.1f}}}', None),
            (METER, f'{{"energy":{counter:.3f}}}', '{"energy":"kWh"}'),
        )
        for device, text, units in data:
            one = row(len(made) + 1, minutes - 12 * 60, device, text, units=units)
            if offline <= one["received"] < online:
                one |= {"appended": online, "processed_at": online + timedelta(seconds=4)}
            made.append(one)
    return made


def write_table(spark: SparkSession, made: list[Row], folder: Path) -> Path:
    values = [tuple(one[name] for name in rows.COLUMNS) for one in made]
    frame = spark.createDataFrame(values, rows.SCHEMA)
    frame.write.format("delta").partitionBy(*rows.PARTITIONED_BY).save(str(folder))
    return folder


def create_table(connection: psycopg.Connection, name: str, made: list[Row]) -> None:
    """Create a table in PostgreSQL as the job does, with the rows."""
    connection.execute(Statements(name, f"{name}_quarantine").create_table)
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.COLUMNS))
    places = sql.SQL(", ").join(sql.Placeholder() * len(rows.COLUMNS))
    insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(name), columns, places)
    for one in made:
        connection.execute(insert, list(one.values()))
