"""Delta tables as the job writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from simulators.evidence.row import Row


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Append rows to a table."""
    write_deltalake(folder, columns(rows), mode="append")


def columns(rows: Sequence[Row]) -> Table:
    """Return rows as columns; ids become text, and fingerprints are derived from the rows' placeholders."""
    values: dict[str, Any] = {
        "device": _texts([row.device for row in rows]),
        "type": _texts([row.type for row in rows]),
        "id": _texts([row.id for row in rows]),
        "boot": _texts([row.boot for row in rows]),
        "event_time": _moments([row.time for row in rows]),
        "data": _texts([None if row.data is None else json.dumps(row.data) for row in rows]),
        "epoch": _texts([row.epoch for row in rows]),
        "sequence": Array([row.sequence for row in rows], DataType.int64()),
        "kafka_partition": Array([row.partition for row in rows], DataType.int32()),
        "kafka_offset": Array([row.offset for row in rows], DataType.int64()),
        "fingerprint": Array([str(row.fingerprint).encode() for row in rows], DataType.binary()),
        "processed_at": _moments([row.at for row in rows]),
        "gateway": _texts([row.gateway for row in rows]),
    }
    return Table.from_pydict(values)


def _texts(values: Sequence[object]) -> Array:
    return Array([None if value is None else str(value) for value in values], DataType.string())


def _moments(milliseconds: Sequence[int | None]) -> Array:
    microseconds = [None if moment is None else moment * 1000 + 999 for moment in milliseconds]
    return Array(microseconds, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))
