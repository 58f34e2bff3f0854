"""A private PostgreSQL server keeps committed data, and leaves no process behind."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from simulators.services.postgres import Postgres


@pytest.mark.heavy
def test_what_is_committed_survives_a_kill(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        connection = server.write_connection(tmp_path / "connection").read_text()
        assert "password" not in connection
        with psycopg.connect(connection) as opened:
            opened.execute("CREATE TABLE kept AS SELECT 17 AS it")
        server.kill()
        server.start()
        with psycopg.connect(connection) as opened:
            assert opened.execute("SELECT it FROM kept").fetchone() == (17,)
        data = server.process.command.folder
    assert data is not None
    assert not data.exists()
    assert not server.process.alive
