"""Effects of the killed jobs: each new event's id into a table, with the batch's key."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame

from cloud.processing import append_to_delta, insert_into_postgres

PLACE = "ONCEGATE_TEST_EFFECTS"
"""The variable that names the Delta table, or the file with the connection of PostgreSQL."""
TABLE = "made"


def delta(rows: DataFrame, key: str) -> None:
    append_to_delta(rows.select("id"), os.environ[PLACE], key)


def postgres(rows: DataFrame, key: str) -> None:
    connection = Path(os.environ[PLACE])
    # Changes of files, at which the job may be killed: before and behind the commit, which is none.
    moment = connection.with_name("data") / "effect"
    moment.mkdir(exist_ok=True)
    insert_into_postgres(rows.select("id"), connection, TABLE, key)
    moment.mkdir(exist_ok=True)
