"""Reads the Delta table without Spark, through delta-rs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from contract.event import DEVICE_RESERVED_PREFIX
from simulators.errors import SimulatorError
from simulators.evidence.row import Row

# Whole milliseconds, for any unit of the timestamps in the files.
_MILLISECONDS = "CAST(arrow_cast({0}, 'Timestamp(Millisecond, Some(\"UTC\"))') AS BIGINT) AS {0}"
_COLUMNS = (
    *("device", "type", "id", _MILLISECONDS.format("event_time"), "data", "boot", "epoch", "sequence"),
    *("kafka_partition", "kafka_offset", "encode(fingerprint, 'hex') AS fingerprint"),
    _MILLISECONDS.format("processed_at"),
    "gateway",
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM events WHERE NOT starts_with(device, '{DEVICE_RESERVED_PREFIX}')"


class TableError(SimulatorError):
    """The table could not be read."""


def require(folder: Path) -> None:
    """Raise TableError where the table does not exist."""
    if not DeltaTable.is_deltatable(str(folder)):
        raise TableError(f"{folder}: there is no Delta table; a job makes it with its first batch")


def read(folder: Path, devices: str = "") -> Iterator[Row]:
    """Yield the rows of sensors with this name prefix, in no order; a missing table has none."""
    query = f"{_SELECT} AND starts_with(device, '{devices.replace(chr(39), chr(39) * 2)}')"
    for device, type_, id_, time, data, *more in _select(folder, query):
        yield Row(device, type_, id_, time, None if data is None else orjson.loads(data), *more)


def read_commits(folder: Path) -> list[tuple[int, int]]:
    """Return the time of each commit, in milliseconds since 1970 UTC, and the number of rows that it added.

    The log of a table keeps an hour: the rows of earlier commits count as added by the first one that it has.
    """
    try:
        history = DeltaTable(folder).history()
    except TableNotFoundError:
        return []
    writes = [entry for entry in reversed(history) if entry["operation"] == "WRITE"]
    commits = [(int(entry["timestamp"]), int(_metrics(entry).get("numOutputRows", 0))) for entry in writes]
    if not commits:
        return []
    [(rows,)] = _select(folder, "SELECT count(*) FROM events")
    (first, added), *later = commits
    return [(first, added + rows - sum(count for _, count in commits)), *later]


def _metrics(entry: dict[str, Any]) -> dict[str, Any]:
    metrics = entry.get("operationMetrics") or {}
    return json.loads(metrics) if isinstance(metrics, str) else metrics


def _select(folder: Path, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the result in batches, so that a large table needs little memory."""
    try:
        for batch in QueryBuilder().register("events", DeltaTable(folder)).execute(query):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except TableNotFoundError:
        return
    except Exception as error:  # the query engine raises nothing narrower
        raise TableError(f"{folder}: {error}") from error
