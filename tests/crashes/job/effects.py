"""Effects of the killed jobs: each new event's id into a table, with the batch's key."""

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
    # The commit is no change of a file: these are, before which the job is killed, several since starts differ by some.
    for _ in range(8):
        connection.with_name("data").joinpath("effect").mkdir(exist_ok=True)
    insert_into_postgres(rows.select("id"), connection, TABLE, key)
