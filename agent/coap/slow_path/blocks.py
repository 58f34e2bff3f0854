"""Assembles bodies that arrive in blocks (RFC 7959 section 2.5), within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b

from agent.coap.endpoint import RETRANSMISSION_KEY_BYTES
from agent.coap.errors import CoapError

ASSEMBLIES_MAX = 64
"""Uploads at once; beyond it the least recently active one is dropped, and its sensor begins again."""


class BlockError(CoapError):
    """A block that cannot be accepted."""


class IncompleteError(BlockError):
    """A block before it is missing: begin again with the first (4.08)."""


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
    last: bytes = b""
    chain: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    def append(self, block: Block, now: float) -> None:
        self.touched, self.last, self.complete = now, block.retransmission_key, not block.more
        self.chain = blake2b(self.chain + block.retransmission_key, digest_size=RETRANSMISSION_KEY_BYTES).digest()
        self.body += block.payload


class Blocks:
    """The current uploads, and recently completed ones, whose last block may be retransmitted."""

    def __init__(self, body_bytes_max: int, lifetime_seconds: float) -> None:
        self._body_bytes_max = body_bytes_max
        self._lifetime_seconds = lifetime_seconds
        self._assemblies: OrderedDict[Hashable, _Assembly] = OrderedDict()

    def __len__(self) -> int:
        return len(self._assemblies)

    def take(self, key: Hashable, block: Block, now: float) -> CompleteBody | None:
        """Add a block to its upload; return None where more are expected. A retransmitted block changes nothing.

        Raise IncompleteError, TooLargeError, BlockSizeError, after which the upload is dropped.
        """
        self._forget(now)
        assembly = self._assemblies.get(key)
        if assembly is None or not _is_repetition(assembly, block):
            assembly = self._extend(key, assembly, block, now)
        if not assembly.complete or block.more:
            return None
        return CompleteBody(bytes(assembly.body), block.retransmission_key if block.start == 0 else assembly.chain)

    def _extend(self, key: Hashable, assembly: _Assembly | None, block: Block, now: float) -> _Assembly:
        self._assemblies.pop(key, None)
        if block.start == 0:
            assembly = _Assembly(now, block.retransmission_key)
        elif assembly is None or assembly.complete or block.start != len(assembly.body):
            raise IncompleteError
        if (block.more and len(block.payload) != block.size) or len(block.payload) > block.size:
            raise BlockSizeError
        if block.start + len(block.payload) > self._body_bytes_max:
            raise TooLargeError
        assembly.append(block, now)
        self._assemblies[key] = assembly
        if len(self._assemblies) > ASSEMBLIES_MAX:
            self._assemblies.popitem(last=False)
        return assembly

    def _forget(self, now: float) -> None:
        """Drop the uploads that were inactive for too long."""
        while self._assemblies:
            key, assembly = next(iter(self._assemblies.items()))
            if now - assembly.touched < self._lifetime_seconds:
                return
            del self._assemblies[key]


def _is_repetition(assembly: _Assembly, block: Block) -> bool:
    if block.retransmission_key == assembly.last:
        return True
    return block.start == 0 and block.retransmission_key == assembly.first and not assembly.complete
