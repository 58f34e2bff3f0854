"""The packed form of the events of one commit: one blob, each event with a checksum of its own."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from agent.store.compression import MARK, expand, expand_blocks
from agent.store.damage import DamagedEventError
from contract.record import Clock, Shared

_HEAD = Struct("<IIBq16s")
"""Checksum over all that follows and the position, length of the tail, flags, bound, fingerprint."""
_CHECKED = Struct("<IBq16s")
_POSITION = Struct("<q")

_TRUSTED = 0x01
_BOUND = 0x02
_SHARED = {Shared.TIME: 0x00, Shared.LABEL: 0x04, Shared.NONE: 0x08}
_SHARED_OF = {flag: shared for shared, flag in _SHARED.items()}
_SHARED_MASK = 0x0C
_CLOCK_OF = (Clock.UNTRUSTED, Clock.TRUSTED)


class PackedEvent(NamedTuple):
    """One event as it lies on disk."""

    position: int
    fingerprint: bytes
    tail: bytes
    clock: Clock
    shared: Shared
    bound: int | None


def pack(event: PackedEvent) -> bytes:
    """Write one event."""
    flags = _SHARED[event.shared]
    if event.clock is Clock.TRUSTED:
        flags |= _TRUSTED
    if event.bound is not None:
        flags |= _BOUND
    checked = _CHECKED.pack(len(event.tail), flags, event.bound or 0, event.fingerprint)
    return _checksum(event.position, checked, event.tail).to_bytes(4, "little") + checked + event.tail


def unpack(first_position: int, blob: bytes) -> Iterator[PackedEvent]:
    """Read the events of one commit, each verified; raise DamagedEventError at the first that is not whole."""
    yield from _unpack(first_position, expand(blob))


def _unpack(first_position: int, blob: bytes) -> Iterator[PackedEvent]:
    at, position = 0, first_position
    while at < len(blob):
        if len(blob) - at < _HEAD.size:
            raise DamagedEventError(position, position)
        checksum, length, flags, bound, fingerprint = _HEAD.unpack_from(blob, at)
        tail = blob[at + _HEAD.size : at + _HEAD.size + length]
        if len(tail) != length or checksum != _checksum(position, blob[at + 4 : at + _HEAD.size], tail):
            raise DamagedEventError(position, position)
        yield PackedEvent(
            position,
            fingerprint,
            tail,
            _CLOCK_OF[flags & _TRUSTED],
            _SHARED_OF[flags & _SHARED_MASK],
            bound if flags & _BOUND else None,
        )
        at += _HEAD.size + length
        position += 1


def unpack_readable(first_position: int, count: int, blob: bytes) -> Iterator[PackedEvent]:
    """Read what is whole of a commit of `count` events, whatever lies between."""
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
    """Find the next event that is whole: where it starts, and its position below `end`."""
    for start in range(at, len(blob) - _HEAD.size + 1):
        piece = _one(blob, start)
        if piece:
            for place in range(position, end):
                if _checksum(place, piece[4 : _HEAD.size], piece[_HEAD.size :]) == int.from_bytes(piece[:4], "little"):
                    return start, place
    return None


def _one(blob: bytes, at: int) -> bytes:
    """Cut out the event whose head would start here; empty where none can."""
    _, length, flags, _, fingerprint = _HEAD.unpack_from(blob, at)
    end = at + _HEAD.size + length
    plausible = end <= len(blob) and flags & _SHARED_MASK in _SHARED_OF and any(fingerprint)
    return blob[at:end] if plausible else b""


def _checksum(position: int, checked: bytes, tail: bytes) -> int:
    return crc32(tail, crc32(checked, crc32(_POSITION.pack(position))))
