"""The table on disk, as the oracle reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from simulators.evidence import delta
from simulators.evidence.row import Row
from tests.simulators.truth import NOW, TABLE


def test_a_table_on_disk_is_read_as_it_is(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "device": _texts("urn:oncegate:gateway:g", TABLE[0].device, TABLE[1].device),
        "type": _texts("gateway.started", "reading", "alarm"),
        "id": _texts("00ff", "17", None),
        "boot": _texts(None, "2", None),
        "event_time": _moments(None, None, NOW + 7),
        "data": _texts(None, '{"temperature":21.50}', '{"open":true,"of":[1,{"a":"ü"}]}'),
        "epoch": _texts("e", "e", "e"),
        "sequence": Array([1, 2, 3], DataType.int64()),
        "kafka_partition": Array([0, 0, 0], DataType.int32()),
        "kafka_offset": Array([5, 6, 7], DataType.int64()),
        "fingerprint": Array([b"\x01" * 16, b"\x02" * 16, b"\x03" * 16], DataType.binary()),
        "processed_at": _moments(NOW, NOW, NOW),
    }
    write_deltalake(tmp_path, Table.from_pydict(columns))

    assert list(delta.read(tmp_path)) == [
        Row(TABLE[0].device, "reading", "17", None, {"temperature": 21.5}, "2", "e", 2, 0, 6, "02" * 16, NOW),
        Row(
            TABLE[1].device,
            "alarm",
            None,
            NOW + 7,
            {"open": True, "of": [1, {"a": "ü"}]},
            epoch="e",
            sequence=3,
            partition=0,
            offset=7,
            fingerprint="03" * 16,
            at=NOW,
        ),
    ]
    write_deltalake(tmp_path, Table.from_pydict(columns), mode="append")
    assert len(list(delta.read(tmp_path))) == 4


def _texts(*values: str | None) -> Array:
    return Array(values, DataType.string())


def _moments(*milliseconds: int | None) -> Array:
    microseconds = [None if moment is None else moment * 1000 + 999 for moment in milliseconds]
    return Array(microseconds, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert list(delta.read(tmp_path / "none")) == []
