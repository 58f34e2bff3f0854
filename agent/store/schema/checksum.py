"""Whether rows are as they were written: their checksums, which SQLite lacks, and the types of values without one.

A wrong range of positions would lose events without notice. In a damaged file a value may be of any type, whatever its
column is declared to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from zlib import crc32

from agent.store.errors import DamagedStoreError

_Value = TypeVar("_Value")


def checksum(table: str, row: Iterable[Any]) -> int:
    """Return the checksum of a row's values, in their order, in this table."""
    crc = crc32(table.encode())
    for value in row:
        crc = crc32(value if isinstance(value, bytes) else b"%s;" % repr(value).encode(), crc)
    return crc


def is_whole(table: str, row: tuple[Any, ...]) -> bool:
    """Whether a row, with its checksum last, equals what was written."""
    return bool(row) and row[-1] == checksum(table, row[:-1])


def verified(table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows without their checksum; raise DamagedStoreError at the first that is not whole."""
    for row in rows:
        if not is_whole(table, row):
            raise DamagedStoreError(f"table {table}, row {row[0]!r}: the checksum does not match")
        yield row[:-1]


def typed(value: object, kind: type[_Value], subject: str) -> _Value:
    """Return a value without a checksum; raise DamagedStoreError if its type is wrong."""
    if not isinstance(value, kind):
        raise DamagedStoreError(f"{subject}: {type(value).__name__} instead of {kind.__name__}")
    return value
