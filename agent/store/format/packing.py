"""The packed form of the events of one commit: one blob, in which each event has its own checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Final, final
from zlib import crc32

from agent.store.errors import DamagedEventError
from agent.store.format.compression import MARK, expand, expand_blocks, whole_blocks
from contract.record import ClockTrust, Shared

_HEAD: Final = Struct("<IIBq16s")
"""Checksum over all that follows and the position, length of the tail, flags, bound, fingerprint."""
CONTENT_AT: Final = 17
"""Where in a packed event its fingerprint begins, which the tail follows."""
_CHECKED: Final = Struct("<qIBq16s")
"""The bytes that the checksum covers before the tail: the position, and the head without the checksum."""
_POSITION: Final = Struct("<q")

_TRUSTED: Final = 0x01
_BOUND: Final = 0x02
_SHARED: Final = {Shared.TIME: 0x00, Shared.LABEL: 0x04, Shared.NONE: 0x08}
_SHARED_OF: Final = {flag: shared for shared, flag in _SHARED.items()}
_SHARED_MASK: Final = 0x0C
_CLOCK_OF: Final[tuple[ClockTrust, ...]] = (ClockTrust.UNTRUSTED, ClockTrust.TRUSTED)
# For speed: looking a member up through its class, or by its hash, takes as long as a checksum.
_IS_TIME: Final = Shared.TIME
_IS_TRUSTED: Final = ClockTrust.TRUSTED


@final
@dataclass(slots=True, init=False)
class PackedEvent:
    """One event as it is stored; its `__init__` is written, which is faster than a generated one (decision 14)."""

    position: int
    fingerprint: bytes
    tail: bytes
    clock: ClockTrust
    shared: Shared
    bound: int | None

    def __init__(
        self, position: int, fingerprint: bytes, tail: bytes, clock: ClockTrust, shared: Shared, bound: int | None
    ) -> None:
        self.position = position
        self.fingerprint = fingerprint
        self.tail = tail
        self.clock = clock
        self.shared = shared
        self.bound = bound


def pack(event: PackedEvent) -> bytes:
    """Return the packed form of one event."""
    return pack_fields(event.position, event.fingerprint, event.tail, event.clock, event.shared, event.bound)


def pack_fields(
    position: int, fingerprint: bytes, tail: bytes, clock: ClockTrust, shared: Shared, bound: int | None
) -> bytes:
    """Return the packed form of one event, given as the fields of a PackedEvent."""
    flags = 0 if shared is _IS_TIME else _SHARED[shared]
    if clock is _IS_TRUSTED:
        flags |= _TRUSTED
    if bound is None:
        bound = 0
    else:
        flags |= _BOUND
    checked = _CHECKED.pack(position, len(tail), flags, bound, fingerprint) + tail
    return crc32(checked).to_bytes(4, "little") + checked[_POSITION.size :]


def unpack(first_position: int, blob: bytes) -> Iterator[PackedEvent]:
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


def _unpack_block(position: int, heads: bytes, tails: bytes) -> list[PackedEvent]:
    """Return the events of a block up to the first that is not whole."""
    events: list[PackedEvent] = []
    end = 0
    for checksum, length, flags, bound, fingerprint in _HEAD.iter_unpack(heads):
        start, end = end, end + length
        tail = tails[start:end]
        checked = _CHECKED.pack(position, length, flags, bound, fingerprint)
        if checksum != crc32(tail, crc32(checked)) or len(tail) != length:
            break
        clock, shared = _CLOCK_OF[flags & _TRUSTED], _SHARED_OF[flags & _SHARED_MASK]
        events.append(PackedEvent(position, fingerprint, tail, clock, shared, bound if flags & _BOUND else None))
        position += 1
    return events


def _unpack(first_position: int, blob: bytes) -> Iterator[PackedEvent]:
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
        yield PackedEvent(position, fingerprint, tail, clock, shared, bound if flags & _BOUND else None)
        at = end
        position += 1


def unpack_readable(first_position: int, count: int, blob: bytes) -> Iterator[PackedEvent]:
    """Yield the intact events of a commit of `count` events, whatever is damaged between them."""
    found = list(_unpack_readable(first_position, count, expand(blob)))
    if len(found) < count and not blob.startswith(MARK) and MARK in blob:
        # Its first mark may be damaged; or it has no blocks, and the mark is there by chance.
        found = max(found, list(_unpack_readable(first_position, count, expand_blocks(blob))), key=len)
    yield from found


def _unpack_readable(first_position: int, count: int, blob: bytes) -> Iterator[PackedEvent]:
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
