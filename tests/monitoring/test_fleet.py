"""Every query of the fleet's dashboard is answered by a real PostgreSQL server, with 100,000 gateways in the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from simulators.services.postgres import Postgres
from tests.monitoring.fleet_table import fill, views
from tests.monitoring.test_monitoring import FOLDER

GATEWAYS = 100_000
DAYS = 1
PANELS = json.loads((FOLDER / "fleet-dashboard.json").read_text())["panels"]
TIME_FILTER = re.compile(r"\$__timeFilter\((\w+)\)")
SELECTED = r"\1 BETWEEN now() - INTERVAL '7' DAY AND now()"
"""What Grafana puts in place of the filter."""
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "Gateways": [(GATEWAYS,)],
    "Silent for a day": [(GATEWAYS // 100,)],
    "Clocks not synchronised": [(GATEWAYS // 50,)],
    "Gateways by health": [
        ("behind", 1_000),
        ("clock not synchronised", 2_000),
        ("has lost events", 20),
        ("healthy", 95_980),
        ("silent", 1_000),
    ],
    "Versions of the agent": [("0.1.0", 30_000), ("0.2.0", 70_000)],
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection]:
    folder: Path = tmp_path_factory.mktemp("postgres")
    with Postgres(folder) as server, psycopg.connect(server.connection, autocommit=True) as opened:
        fill(opened, GATEWAYS, DAYS)
        views(opened)
        yield opened


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_query_of_the_dashboard_is_answered(connection: psycopg.Connection, panel: dict[str, Any]) -> None:
    [target] = panel["targets"]
    found = connection.execute(TIME_FILTER.sub(SELECTED, target["rawSql"]).encode()).fetchall()
    assert found
    if expected := EXPECTED.get(panel["title"]):
        assert found == expected
