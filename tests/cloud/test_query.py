"""The command `query` answers queries, and writes nothing."""

from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from cloud.delta.sink import QUARANTINE
from cloud.delta.table import DeltaTable
from cloud.errors import JobError, StopError
from cloud.postgres.sink import PostgresSink
from cloud.query import QuerySettings, ask_postgres, ask_spark
from cloud.sinks import DELTA, POSTGRES, Tables
from cloud.table.devices import Devices
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway
from tests.cloud.tables import ACCEPTED, counters, table_of, versions

pytestmark = pytest.mark.spark


@pytest.mark.heavy
def test_a_statement_that_would_write_to_a_delta_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table_of(spark, tmp_path, Gateway().records(counters(1, 2, 3), ACCEPTED))
    folder, quarantine = tmp_path / "events", tmp_path / "quarantine"
    DeltaTable(spark, str(quarantine), QUARANTINE)
    before = versions(folder)
    session = spark.newSession()  # with views of its own

    def ask(statement: str) -> list[object]:
        settings = QuerySettings(Tables(DELTA, str(folder), str(quarantine)), statement, "json", 2)
        return [row[0] for row in ask_spark(session, settings).rows]

    assert ask("WITH e AS (SELECT id FROM events) SELECT id FROM e ORDER BY id DESC -- last first") == ["3", "2", "1"]
    assert ask("SELECT count(*) FROM quarantine;") == [0]
    assert ask("SELECT count(*) FROM events_corrected WHERE received_corrected = received") == [3]
    for statement in (
        "DELETE FROM events WHERE id = '1'",
        f"DELETE FROM delta.`{folder}`",
        f"INSERT INTO delta.`{folder}` SELECT * FROM events",
        f"OPTIMIZE delta.`{folder}`",
        f"DROP TABLE delta.`{folder}`",
    ):
        with pytest.raises(StopError, match="is not a query"):
            ask(statement)
    with pytest.raises(StopError, match="at or near 'FROM'"):
        ask("SELEC id FROM events")
    with pytest.raises(StopError, match="`colour` cannot be resolved"):
        ask("SELECT colour FROM events")
    with pytest.raises(StopError, match="CAST_INVALID_INPUT"):
        ask("SELECT CAST(device AS int) FROM events")
    assert versions(folder) == before


def test_a_statement_that_would_write_to_postgresql_is_refused(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex}"
    PostgresSink(postgres.connection, name, f"{name}_q", Devices(spark, None), 1)
    with psycopg.connect(postgres.connection) as connection:
        connection.execute(f"INSERT INTO {name} (fingerprint) VALUES ('x')".encode())
    file = tmp_path / "connection"
    file.write_text(postgres.connection)
    file.chmod(0o600)

    def ask(statement: str) -> list[object]:
        settings = QuerySettings(Tables(POSTGRES, name, f"{name}_q", file), statement, "json", 2)
        return [row[0] for row in ask_postgres(None, settings).rows]

    for statement in (f"DELETE FROM {name}", f"COMMIT; DELETE FROM {name}", "COMMIT"):
        with pytest.raises(JobError):
            ask(statement)
    assert ask("SELECT count(*) FROM events") == [1]
