"""Reads the job's table in PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import psycopg
from psycopg import sql

from contract.event import DEVICE_RESERVED_PREFIX
from simulators.errors import SimulatorError
from simulators.evidence.row import Row

_MILLISECONDS = "floor(extract(epoch FROM {0}) * 1000)::bigint"
_COLUMNS = (
    *("device", "type", "id", _MILLISECONDS.format("event_time"), "data", "boot", "epoch", "sequence"),
    *("kafka_partition", "kafka_offset", "encode(fingerprint, 'hex')", _MILLISECONDS.format("processed_at")),
    "gateway",
)
_BATCH = 5_000


class PostgresError(SimulatorError):
    """The table could not be read."""


def read(connection_file: Path, table: str, devices: str = "") -> Iterator[Row]:
    """Yield the rows of sensors with this name prefix, in no order; the file holds a libpq connection string."""
    query = sql.SQL("SELECT {} FROM {} WHERE NOT starts_with(device, %s) AND starts_with(device, %s)").format(
        sql.SQL(", ".join(_COLUMNS)), sql.Identifier(*table.split("."))
    )
    try:
        # A server-side cursor, so that a large table needs little memory.
        with psycopg.connect(connection_file.read_text().strip()) as opened, opened.cursor("oncegate_sim") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(query, (DEVICE_RESERVED_PREFIX, devices))
            for device, type_, id_, time, data, *more in cursor:
                yield Row(device, type_, id_, time, None if data is None else orjson.loads(data), *more)
    except (OSError, psycopg.Error) as error:
        raise PostgresError(f"postgres: {table}: {str(error).strip() or type(error).__name__}") from error
