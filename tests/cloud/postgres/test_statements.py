"""The statements of docs/table.md's procedures, on PostgreSQL tables as the job creates them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from simulators.services.postgres import Postgres
from tests.cloud.made_rows import METER, THERMOMETER, create_table, insert_rows, row
from tests.cloud.procedures import statements

READ, COUNTED = row(1, 0, THERMOMETER, '{"temperature":21.5}'), row(2, 0, METER, '{"energy":100}')


@pytest.fixture
def connection(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """Yield a connection whose tables are in a schema of the test."""
    schema = f"s{uuid4().hex}"
    with psycopg.connect(postgres.connection, autocommit=True) as opened:
        opened.execute(f"CREATE SCHEMA {schema}; SET search_path TO {schema}".encode())
        yield opened


def column(connection: psycopg.Connection, statement: str) -> list[object]:
    return [value for (value,) in connection.execute(statement.encode()).fetchall()]


def test_the_events_of_one_device_are_erased(connection: psycopg.Connection) -> None:
    create_table(connection, "events", [READ, COUNTED])
    erase, _ = statements("Erase the events of a device", "PostgreSQL")
    connection.execute(erase.encode())
    assert column(connection, "SELECT device FROM events ORDER BY sequence") == ["urn:oncegate:erased", METER]
    assert column(connection, "SELECT data FROM events ORDER BY sequence")[0] is None


def test_a_column_beside_the_jobs_is_null_in_its_rows_until_it_is_filled(connection: psycopg.Connection) -> None:
    create_table(connection, "events", [READ])
    add, fill = statements("Change the schema", "PostgreSQL")
    connection.execute(add.encode())
    insert_rows(connection, "events", [COUNTED])
    connection.execute(fill.encode())
    assert column(connection, "SELECT room FROM events ORDER BY sequence") == ["boiler", None]


def test_what_a_second_table_lacks_is_copied_from_the_first(connection: psycopg.Connection) -> None:
    create_table(connection, "events", [READ, COUNTED])
    create_table(connection, "second", [COUNTED | {"device_name": "Meter"}])
    [copy] = statements("Reprocess the topic", "PostgreSQL")
    for _ in range(2):  # a second time changes nothing
        connection.execute(copy.encode())
    assert column(connection, "SELECT device_name FROM second ORDER BY sequence") == [None, "Meter"]
