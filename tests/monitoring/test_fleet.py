"""Every query of the fleet's dashboard is answered by a real PostgreSQL server, with 10,000 gateways in the table."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cloud.postgres.statements import Statements
from simulators.services.postgres import Postgres
from tests.docs.pages import ROOT
from tests.monitoring.test_monitoring import FOLDER

GATEWAYS = 10_000
DAYS = 1
CHECKPOINTS_A_DAY = 4

# Of each hundred gateways one is silent for two days, two have no synchronised clock, one is behind; of a thousand, two
# restart every hour and two have lost events.
_FILL = f"""
INSERT INTO events (fingerprint, device, type, received, clock, appended, gateway, epoch, sequence, via, data, day)
SELECT decode(md5(gateway || type || sequence), 'hex'), 'urn:oncegate:gateway:' || gateway, type,
       at - CASE WHEN number % 100 = 7 THEN INTERVAL '2 hours' ELSE INTERVAL '1 second' END,
       CASE WHEN number % 50 = 3 THEN 'untrusted' ELSE 'trusted' END, at, gateway, lpad(to_hex(number), 16, '0'),
       sequence, 'gateway', data, at::date
FROM (
    SELECT number, gateway, type, sequence, data,
           now() - CASE WHEN number % 100 = 1 THEN INTERVAL '2 days' ELSE INTERVAL '0' END - age AS at
    FROM (SELECT number, 'gw-' || lpad(number::text, 6, '0') AS gateway
          FROM generate_series(1, {GATEWAYS}::bigint) number) g
    CROSS JOIN LATERAL (
        SELECT 'gateway.started' AS type, 1 AS sequence, {DAYS} * INTERVAL '1 day' AS age, json_build_object(
            'version', CASE WHEN number % 10 < 3 THEN '0.1.0' ELSE '0.2.0' END, 'new_events', 0,
            'written_bytes', number)::text AS data
        UNION ALL
        SELECT 'gateway.checkpoint', 1 + 4096 * n, ({DAYS} - n / {CHECKPOINTS_A_DAY}::float8) * INTERVAL '1 day',
            json_build_object('first', 1, 'last', 4096 * n, 'digest', repeat('ab', 32),
            'version', CASE WHEN number % 10 < 3 THEN '0.1.0' ELSE '0.2.0' END,
            'new_events', CASE WHEN number % 100 = 7 THEN 20000 + number ELSE number % 3 END,
            'written_bytes', number + n * (1000000 + number * 1000))::text
        FROM generate_series(1, {DAYS} * {CHECKPOINTS_A_DAY}) n
        UNION ALL
        SELECT 'gateway.started', 100000 + n, n * INTERVAL '1 hour', '{{"new_events":0}}'
        FROM generate_series(1, 23) n WHERE number % 1000 IN (11, 12)
        UNION ALL
        SELECT 'gateway.gap', 200000, INTERVAL '3 hours',
            json_build_object('reason', CASE WHEN number % 2 = 0 THEN 'full' ELSE 'damaged' END, 'count', number)::text
        WHERE number % 1000 IN (21, 22)
        UNION ALL
        SELECT 'gateway.clock', 300000, {DAYS} * INTERVAL '1 day',
            json_build_object('epoch', 'e', 'first', 1, 'last', 9, 'correction_ms', number * 10)::text
        WHERE number % 100 = 31
    ) own
) dated
"""


def fill(connection: psycopg.Connection) -> None:
    """Create the job's table with what the gateways state."""
    statements = Statements("events", "quarantine")
    connection.execute(statements.create_table)
    connection.execute(statements(Statements.CREATE_RECEIVED))
    connection.execute(statements(Statements.CREATE_OWN))
    connection.execute(_FILL.encode())
    connection.execute("ANALYZE events")


def views(connection: psycopg.Connection) -> None:
    _, first, rest = (
        (ROOT / "docs" / "examples" / "views-postgresql.sql").read_text().partition("CREATE VIEW gateway_events")
    )
    connection.execute((first + rest).encode())


PANELS = json.loads((FOLDER / "fleet-dashboard.json").read_text())["panels"]
TIME_FILTER = re.compile(r"\$__timeFilter\((\w+)\)")
SELECTED = r"\1 BETWEEN now() - INTERVAL '7' DAY AND now()"
"""What Grafana puts in place of the filter."""
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "Gateways": [(GATEWAYS,)],
    "Silent for a day": [(GATEWAYS // 100,)],
    "Clocks not synchronised": [(GATEWAYS // 50,)],
    "Gateways by health": [
        ("behind", 100),
        ("clock not synchronised", 200),
        ("has lost events", 20),
        ("healthy", 9_580),
        ("silent", 100),
    ],
    "Versions of the agent": [("0.1.0", 3_000), ("0.2.0", 7_000)],
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection]:
    folder: Path = tmp_path_factory.mktemp("postgres")
    with Postgres(folder) as server, psycopg.connect(server.connection, autocommit=True) as opened:
        fill(opened)
        views(opened)
        yield opened


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_query_of_the_dashboard_is_answered(connection: psycopg.Connection, panel: dict[str, Any]) -> None:
    [target] = panel["targets"]
    found = connection.execute(TIME_FILTER.sub(SELECTED, target["rawSql"]).encode()).fetchall()
    assert found
    if expected := EXPECTED.get(panel["title"]):
        assert found == expected
