"""Compresses commits, to write less to flash: the events of one commit are much alike.

A commit of EVENTS_MIN events or more is cut into blocks. A block holds its events' heads as they are, and their tails
deflated together; so a damaged bit costs one block's events at most. A smaller commit is stored as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import Final

HEAD_BYTES: Final = 33
"""The head of a packed event; bytes 4 to 8 are the length of its tail (packing.py)."""
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
    if not blob.startswith(MARK):
        return blob
    return expand_blocks(blob)


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
