"""The stored form: of a row, its values with a checksum, which SQLite lacks; of the events of one commit, one blob.

In a blob each event has its own checksum. To write less to flash, a commit of EVENTS_MIN events or more is cut into
blocks, since the events of one commit are much alike (decision 17). A block holds its events' heads as they are, and
their tails deflated together; so a damaged bit costs one block's events at most. A smaller commit is stored as it is.

In a damaged file a value may be of any type, whatever its column is declared to be; a wrong range of positions would
lose events without notice.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from struct import Struct
from typing import Any, Final, TypeVar
from zlib import crc32

from agent.store.errors import DamagedEventError, DamagedStoreError
from agent.store.port import StoredEvent
from contract.record import ClockTrust, SharedDay

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


HEAD_BYTES: Final = 33
"""The head of a packed event; bytes 4 to 8 are the length of its tail."""
EVENTS_MIN: Final = 4
"""Fewer events have little in common."""
BLOCK_EVENTS: Final = 32
"""How many events one damaged bit costs at most."""
MARK: Final = b"\0z1\xff"
_LEVEL: Final = 1
_BLOCK: Final = Struct("<4sHI")
"""Mark, events, bytes of the deflated tails; then the heads, then the tails."""


def compress(pieces: Sequence[bytes]) -> bytes:
    """Return the packed events of one commit as one blob."""
    if len(pieces) < EVENTS_MIN:
        plain = b"".join(pieces)
        if not plain.startswith(MARK):  # the first event's checksum may be the mark, by chance
            return plain
    parts: list[bytes] = []
    for start in range(0, len(pieces), BLOCK_EVENTS):
        block = pieces[start : start + BLOCK_EVENTS]
        tails = zlib.compress(b"".join([piece[HEAD_BYTES:] for piece in block]), _LEVEL)
        parts.append(_BLOCK.pack(MARK, len(block), len(tails)))
        parts.extend([piece[:HEAD_BYTES] for piece in block])
        parts.append(tails)
    return b"".join(parts)


def whole_blocks(blob: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield heads, tails and end of each block; stop before the first that is not whole."""
    at = 0
    while at + _BLOCK.size <= len(blob):
        mark, count, length = _BLOCK.unpack_from(blob, at)
        heads = at + _BLOCK.size
        tails = heads + count * HEAD_BYTES
        at = tails + length
        if mark != MARK or at > len(blob):
            return
        try:
            yield blob[heads:tails], zlib.decompress(blob[tails:at]), at
        except zlib.error:
            return


def expand(blob: bytes) -> bytes:
    """Return the packed events of one commit, joined; of damaged blocks as much as possible."""
    return expand_blocks(blob) if blob.startswith(MARK) else blob


def expand_blocks(blob: bytes) -> bytes:
    """Return the packed events of all blocks that can be found."""
    parts: list[bytes] = []
    at = blob.find(MARK)
    while 0 <= at <= len(blob) - _BLOCK.size:
        _, count, length = _BLOCK.unpack_from(blob, at)
        heads = at + _BLOCK.size
        tails = heads + count * HEAD_BYTES
        end = tails + length
        if end != len(blob) and not blob.startswith(MARK, end):
            end = blob.find(MARK, heads)
            end = len(blob) if end < 0 else end
        _expand_block(blob[heads:tails], _inflate(blob[tails:end]), parts)
        at = end
    return b"".join(parts)


def _expand_block(heads: bytes, tails: bytes, parts: list[bytes]) -> None:
    each = [heads[at : at + HEAD_BYTES] for at in range(0, len(heads), HEAD_BYTES)]
    ends = accumulate((int.from_bytes(head[4:8], "little") for head in each), initial=0)
    for head, (start, end) in zip(each, pairwise(ends), strict=True):
        parts.append(head)
        parts.append(tails[start:end])


def _inflate(deflated: bytes) -> bytes:
    """Return the inflated bytes: all, or those before the damage."""
    try:
        return zlib.decompress(deflated)
    except zlib.error:
        pass
    inflating, found = zlib.decompressobj(), bytearray()
    try:
        for at in range(len(deflated)):
            found += inflating.decompress(deflated[at : at + 1])
    except zlib.error:
        pass
    return bytes(found)


_HEAD: Final = Struct("<IIBq16s")
"""Checksum over all that follows and the position, length of the tail, flags, bound, fingerprint."""
CONTENT_AT: Final = 17
"""Where in a packed event its fingerprint begins, which the tail follows."""
_CHECKED: Final = Struct("<qIBq16s")
"""The bytes that the checksum covers before the tail: the position, and the head without the checksum."""
_POSITION: Final = Struct("<q")

_TRUSTED: Final = 0x01
_BOUND: Final = 0x02
_SHARED: Final = {SharedDay.TIME: 0x00, SharedDay.LABEL: 0x04, SharedDay.NONE: 0x08}
_SHARED_OF: Final = {flag: shared for shared, flag in _SHARED.items()}
_SHARED_MASK: Final = 0x0C
_CLOCK_OF: Final[tuple[ClockTrust, ...]] = (ClockTrust.UNTRUSTED, ClockTrust.TRUSTED)
# For speed: looking a member up through its class, or by its hash, takes as long as a checksum.
_IS_TIME: Final = SharedDay.TIME
_IS_TRUSTED: Final = ClockTrust.TRUSTED


def pack(event: StoredEvent) -> bytes:
    """Return the packed form of one event."""
    return pack_fields(event.position, event.fingerprint, event.tail, event.clock, event.shared, event.bound)


def pack_fields(
    position: int, fingerprint: bytes, tail: bytes, clock: ClockTrust, shared: SharedDay, bound: int | None
) -> bytes:
    """Return the packed form of one event, given as its fields."""
    flags = 0 if shared is _IS_TIME else _SHARED[shared]
    if clock is _IS_TRUSTED:
        flags |= _TRUSTED
    if bound is None:
        bound = 0
    else:
        flags |= _BOUND
    checked = _CHECKED.pack(position, len(tail), flags, bound, fingerprint) + tail
    return crc32(checked).to_bytes(4, "little") + checked[_POSITION.size :]


def unpack(first_position: int, blob: bytes) -> Iterator[StoredEvent]:
    """Yield the events of one commit, each verified; raise DamagedEventError at the first that is not whole."""
    position, read = first_position, 0
    for heads, tails, read in whole_blocks(blob):  # noqa: B007  # where it ends is used below
        events = _unpack_block(position, heads, tails)
        yield from events
        position += len(events)
        if len(events) * _HEAD.size < len(heads):
            raise DamagedEventError(position, position)
    if read < len(blob):  # it has no blocks; or one is damaged, and as much is read as possible
        yield from islice(_unpack(first_position, expand(blob)), position - first_position, None)


def _unpack_block(position: int, heads: bytes, tails: bytes) -> list[StoredEvent]:
    """Return the events of a block up to the first that is not whole."""
    events: list[StoredEvent] = []
    end = 0
    for checksum, length, flags, bound, fingerprint in _HEAD.iter_unpack(heads):
        start, end = end, end + length
        tail = tails[start:end]
        checked = _CHECKED.pack(position, length, flags, bound, fingerprint)
        if checksum != crc32(tail, crc32(checked)) or len(tail) != length:
            break
        clock, shared = _CLOCK_OF[flags & _TRUSTED], _SHARED_OF[flags & _SHARED_MASK]
        events.append(StoredEvent(position, fingerprint, tail, clock, shared, bound if flags & _BOUND else None))
        position += 1
    return events


def _unpack(first_position: int, blob: bytes) -> Iterator[StoredEvent]:
    at, position = 0, first_position
    while at < len(blob):
        if len(blob) - at < _HEAD.size:
            raise DamagedEventError(position, position)
        tail_at = at + _HEAD.size
        end = tail_at + int.from_bytes(blob[at + 4 : at + 8], "little")
        head, tail = blob[at:tail_at], blob[tail_at:end]
        checksum, length, flags, bound, fingerprint = _HEAD.unpack(head)
        if length != len(tail) or checksum != _checksum(position, head[4:], tail):
            raise DamagedEventError(position, position)
        clock, shared = _CLOCK_OF[flags & _TRUSTED], _SHARED_OF[flags & _SHARED_MASK]
        yield StoredEvent(position, fingerprint, tail, clock, shared, bound if flags & _BOUND else None)
        at = end
        position += 1


def unpack_readable(first_position: int, count: int, blob: bytes) -> Iterator[StoredEvent]:
    """Yield the intact events of a commit of `count` events, whatever is damaged between them."""
    found = list(_unpack_readable(first_position, count, expand(blob)))
    if len(found) < count and not blob.startswith(MARK) and MARK in blob:
        # Its first mark may be damaged; or it has no blocks, and the mark is there by chance.
        found = max(found, list(_unpack_readable(first_position, count, expand_blocks(blob))), key=len)
    yield from found


def _unpack_readable(first_position: int, count: int, blob: bytes) -> Iterator[StoredEvent]:
    at, position, end = 0, first_position, first_position + count
    while True:
        try:
            for event in _unpack(position, blob[at:]):
                if position == end:
                    return
                yield event
                at += _HEAD.size + len(event.tail)
                position += 1
            return
        except DamagedEventError:
            found = _next_whole(blob, at, position, end)
            if found is None:
                return
            at, position = found


def _next_whole(blob: bytes, at: int, position: int, end: int) -> tuple[int, int] | None:
    """Return where the next whole event starts, and its position below `end`; None where there is none."""
    for start in range(at, len(blob) - _HEAD.size + 1):
        piece = _one(blob, start)
        if piece:
            for place in range(position, end):
                if _checksum(place, piece[4 : _HEAD.size], piece[_HEAD.size :]) == int.from_bytes(piece[:4], "little"):
                    return start, place
    return None


def _one(blob: bytes, at: int) -> bytes:
    """Return the bytes of the event whose head would start here; none where no event can."""
    _, length, flags, _, fingerprint = _HEAD.unpack_from(blob, at)
    end = at + _HEAD.size + length
    plausible = end <= len(blob) and flags & _SHARED_MASK in _SHARED_OF and any(fingerprint)
    return blob[at:end] if plausible else b""


def _checksum(position: int, checked: bytes, tail: bytes) -> int:
    return crc32(tail, crc32(checked, crc32(_POSITION.pack(position))))
