"""Reads the rows of a leaf page without SQLite (https://www.sqlite.org/fileformat2.html sections 1.5, 1.6, 2.1)."""

from __future__ import annotations

from collections.abc import Iterator

from agent.store.files.sqlite_pages import HEADER_BYTES, Fetch
from agent.store.layout import PAGE_BYTES

Value = int | str | bytes | None

_TABLE_LEAF = 0x0D
_INDEX_LEAF = 0x0A
_LEAF_HEADER_BYTES = 8
_LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_TABLE_LOCAL_MAX = PAGE_BYTES - 35
_INDEX_LOCAL_MAX = (PAGE_BYTES - 12) * 64 // 255 - 23
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_ZERO, _ONE = 8, 9
_VARINT_BYTES_MAX = 9
PAYLOAD_BYTES_MAX = 1 << 28
"""More than any commit holds."""


class _WrongCellError(Exception):
    """These bytes are not a cell."""


def rows(number: int, page: bytes, fetch: Fetch) -> Iterator[tuple[Value, ...]]:
    """Yield the readable rows of a page; a table's rows have the rowid as their first column."""
    start = HEADER_BYTES if number == 1 else 0
    if len(page) != PAGE_BYTES or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
        return
    is_table = page[start] == _TABLE_LEAF
    cells = int.from_bytes(page[start + 3 : start + 5], "big")
    pointers = start + _LEAF_HEADER_BYTES
    for at in range(pointers, min(pointers + 2 * cells, PAGE_BYTES - 1), 2):
        try:
            yield _row(page, int.from_bytes(page[at : at + 2], "big"), fetch, is_table=is_table)
        except _WrongCellError:
            continue


def _row(page: bytes, at: int, fetch: Fetch, *, is_table: bool) -> tuple[Value, ...]:
    size, at = _varint(page, at)
    rowid = 0
    if is_table:
        rowid, at = _varint(page, at)
    values = _record(_payload(page, at, size, fetch, _TABLE_LOCAL_MAX if is_table else _INDEX_LOCAL_MAX))
    return (rowid, *values[1:]) if is_table else values


def _payload(page: bytes, at: int, size: int, fetch: Fetch, local_max: int) -> bytes:
    if not 0 <= size <= PAYLOAD_BYTES_MAX:
        raise _WrongCellError
    if size <= local_max:
        return page[at : at + size]
    local = _LOCAL_MIN + (size - _LOCAL_MIN) % (PAGE_BYTES - 4)
    local = local if local <= local_max else _LOCAL_MIN
    pieces = [page[at : at + local]]
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    missing = size - local
    while missing > 0:
        content = fetch(following) if following else b""
        # A lost page leaves a hole of its own size: the events before and behind it are still found.
        content = content if len(content) == PAGE_BYTES else bytes(PAGE_BYTES)
        pieces.append(content[4 : 4 + missing])
        missing -= PAGE_BYTES - 4
        following = int.from_bytes(content[:4], "big")
        if not following and missing > 0:
            break
    return b"".join(pieces)


def _record(payload: bytes) -> tuple[Value, ...]:
    header_end, at = _varint(payload, 0)
    place = header_end
    values: list[Value] = []
    while at < min(header_end, len(payload)):
        kind, at = _varint(payload, at)
        value, place = _value(payload, place, kind)
        values.append(value)
    if not values or at != header_end:
        raise _WrongCellError
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (_ZERO, _ONE):
        return kind - _ZERO, at
    if kind in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind < 12:
        raise _WrongCellError  # a float or reserved: in none of our tables
    end = at + (kind - 12) // 2
    content = payload[at:end]
    if kind % 2 == 0:
        return content, end
    try:
        return content.decode(), end
    except UnicodeDecodeError as error:
        raise _WrongCellError from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + _VARINT_BYTES_MAX):
        if place >= len(data):
            raise _WrongCellError
        byte = data[place]
        if place == at + _VARINT_BYTES_MAX - 1:
            value = value << 8 | byte
            return value - (1 << 64 if value >> 63 else 0), place + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    raise _WrongCellError
