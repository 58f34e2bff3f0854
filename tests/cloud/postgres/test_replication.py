"""A copy of the job's tables that PostgreSQL keeps by logical replication: its rows, changes and audit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from simulators.services.install import programs
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import POSTGRES, CloudSide
from tests.support.commands import output_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(5)]


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Postgres]:
    """Yield a server whose log has what subscribers need."""
    (tmp_path / "publisher").mkdir()
    with Postgres(tmp_path / "publisher") as server:
        execute(server, "ALTER SYSTEM SET wal_level = logical")
        server.stop()
        server.start()
        yield server


@pytest.mark.parametrize("cloud", [POSTGRES], indirect=True)
def test_a_replica_has_rows_and_changes_and_its_audit_tells_what_it_lacks(
    cloud: CloudSide, publisher: Postgres, postgres: Postgres
) -> None:
    cloud.postgres = publisher
    gateway, first = Gateway(), readings(20)
    cloud.send(gateway.records(first), partition=0)
    job = cloud.start()
    cloud.wait_for_receipts(20)
    replica = subscribed(cloud, publisher, postgres)
    wait_until(lambda: len(replica.rows()) == 20, "the first rows")
    copies = Gateway("gw-2", "00000000000000b2").records(first[:5])
    cloud.send([*gateway.records(readings(10, start=20)), *copies], partition=0)
    cloud.wait_for_receipts(35)
    execute(publisher, f"UPDATE {cloud.table_name} SET site = 'north' WHERE id = '3'")
    wait_until(lambda: {row["site"] for row in replica.rows()} == {None, "north"}, "the change")
    assert sorted(map(str, replica.rows())) == sorted(map(str, cloud.rows()))
    assert replica.audited(0) == "accepted 30, duplicate 5"

    execute(postgres, f"ALTER SUBSCRIPTION {cloud.table_name} DISABLE")
    cloud.send(gateway.records(readings(5, start=30)), partition=0)
    cloud.wait_for_receipts(40)
    assert replica.audited(1) == "accepted 30, duplicate 5, unwritten 5"
    execute(postgres, f"ALTER SUBSCRIPTION {cloud.table_name} ENABLE")
    wait_until(lambda: len(replica.rows()) == 35, "the last rows")
    assert replica.audited(0) == "accepted 35, duplicate 5"
    assert job.alive
    assert cloud.stop() == 0


def subscribed(cloud: CloudSide, publisher: Postgres, server: Postgres) -> CloudSide:
    """Create the tables of a job on another server, which follows them; return its side."""
    schema = (programs.require("pg_dump"), f"--dbname={publisher.connection}", "--schema-only")
    made = output_of(*schema, f"--table={cloud.table_name}*")
    load = (programs.require("psql"), f"--dbname={server.connection}", "--quiet", "--set=ON_ERROR_STOP=1")
    output_of(*load, text=made)
    name = cloud.table_name
    execute(publisher, f"CREATE PUBLICATION {name} FOR TABLE {name}, {name}_quarantine, {name}_owner")
    execute(server, f"CREATE SUBSCRIPTION {name} CONNECTION '{publisher.connection}' PUBLICATION {name}")
    folder = cloud.folder / "replica"
    folder.mkdir()
    return replace(cloud, folder=folder, postgres=server, jobs=[])


def execute(server: Postgres, statement: str) -> None:
    with psycopg.connect(server.connection, autocommit=True) as connection:
        connection.execute(statement.encode())
