"""Assembles bodies that arrive in blocks (RFC 7959 section 2.5), within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b

from agent.coap.endpoint import RETRANSMISSION_KEY_BYTES
from agent.coap.errors import CoapError
from agent.coap.response_cache import ResponseCache

ASSEMBLIES_MAX = 1_024
"""Uploads that are kept; beyond it the least recently active one is dropped, and its sensor begins again."""
ASSEMBLED_BYTES_MAX = 4 << 20
"""Bytes of their bodies; beyond it as well, except for the latest one."""
TAKEN_MAX = 8_192
"""Blocks that are remembered as taken, about 240 bytes each."""


class BlockError(CoapError):
    """A block that cannot be accepted."""


class IncompleteError(BlockError):
    """A block before it is missing, or it is of an earlier upload: begin again with the first (4.08)."""


class TooLargeError(BlockError):
    """The body would exceed the maximum size (4.13)."""


class BlockSizeError(BlockError):
    """The payload does not have the length that the block declares (4.00)."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block."""

    start: int
    """Its offset in the body, in bytes."""
    size: int
    more: bool
    payload: bytes
    retransmission_key: bytes
    """Of its datagram."""


@dataclass(frozen=True, slots=True)
class CompleteBody:
    """A body with all its blocks."""

    body: bytes
    retransmission_key: bytes
    """Equal only where the datagrams of all blocks were equal, one by one."""


@dataclass(slots=True)
class _Assembly:
    touched: float
    first: bytes
    """The key of the datagram that began the upload."""
    chain: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    def append(self, block: Block, now: float) -> None:
        self.touched, self.complete = now, not block.more
        self.chain = blake2b(self.chain + block.retransmission_key, digest_size=RETRANSMISSION_KEY_BYTES).digest()
        self.body += block.payload

    def has(self, block: Block) -> bool:
        """Whether the body has a block that this upload has taken at some time, maybe before it was dropped."""
        end = block.start + len(block.payload)
        return self.chain != b"" and end <= len(self.body) and (block.more or self.complete)

    def drop(self) -> None:
        """Drop the body; what the latest upload's first block was stays known."""
        self.chain, self.body, self.complete = b"", bytearray(), False


class Blocks:
    """The current uploads, and recently completed ones, whose last block may be retransmitted.

    The network may deliver a datagram again after the sensor has begun its next upload (RFC 7252 section 4.5). Blocks
    carry nothing that binds them to their upload, so a block that an earlier upload has taken is remembered: it must
    neither begin an upload nor continue another one.
    """

    def __init__(self, body_bytes_max: int, lifetime_seconds: float) -> None:
        self._body_bytes_max = body_bytes_max
        self._lifetime_seconds = lifetime_seconds
        self._assemblies: OrderedDict[Hashable, _Assembly] = OrderedDict()
        self._taken = ResponseCache(lifetime_seconds, TAKEN_MAX)
        """By the key of each block that was taken, the key of its upload's first block."""
        self._bytes = 0
        """Of all bodies."""

    def __len__(self) -> int:
        return len(self._assemblies)

    def take(self, key: Hashable, block: Block, now: float) -> CompleteBody | None:
        """Add a block to its upload; return None where more are expected. A retransmitted block changes nothing.

        Raise IncompleteError, with nothing changed where an earlier upload has taken the block; TooLargeError and
        BlockSizeError. Otherwise the upload is dropped.
        """
        self._forget(now)
        assembly = self._assemblies.get(key)
        upload = self._taken.get(block.retransmission_key, now)
        if upload is not None and (assembly is None or assembly.first != upload):
            raise IncompleteError
        if assembly is None or upload is None or not assembly.has(block):
            assembly = self._extend(key, assembly, block, now)
        if not assembly.complete or block.more:
            return None
        return CompleteBody(bytes(assembly.body), block.retransmission_key if block.start == 0 else assembly.chain)

    def _extend(self, key: Hashable, assembly: _Assembly | None, block: Block, now: float) -> _Assembly:
        if block.start == 0:
            if assembly is not None:
                self._bytes -= len(assembly.body)
            assembly = _Assembly(now, block.retransmission_key)
        elif assembly is None:
            raise IncompleteError
        self._assemblies[key] = assembly
        self._assemblies.move_to_end(key)
        try:
            self._check(assembly, block)
        except BlockError:
            self._bytes -= len(assembly.body)
            assembly.drop()
            raise
        assembly.append(block, now)
        self._bytes += len(block.payload)
        self._taken.put(block.retransmission_key, now, assembly.first)
        while len(self._assemblies) > 1 and self._exceeds_bounds():
            self._remove_oldest()
        return assembly

    def _check(self, assembly: _Assembly, block: Block) -> None:
        """Raise BlockError where the block does not continue the upload."""
        if assembly.complete or block.start != len(assembly.body):
            raise IncompleteError
        if (block.more and len(block.payload) != block.size) or len(block.payload) > block.size:
            raise BlockSizeError
        if block.start + len(block.payload) > self._body_bytes_max:
            raise TooLargeError

    def _forget(self, now: float) -> None:
        """Drop the uploads that were inactive for too long."""
        while self._assemblies:
            oldest = next(iter(self._assemblies.values()))
            if now - oldest.touched < self._lifetime_seconds:
                return
            self._remove_oldest()

    def _exceeds_bounds(self) -> bool:
        return len(self._assemblies) > ASSEMBLIES_MAX or self._bytes > ASSEMBLED_BYTES_MAX

    def _remove_oldest(self) -> None:
        _, assembly = self._assemblies.popitem(last=False)
        self._bytes -= len(assembly.body)
