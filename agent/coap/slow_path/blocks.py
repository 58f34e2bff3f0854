"""Assembles bodies that arrive in blocks (RFC 7959 section 2.5), within bounds."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b

from agent.coap.answer import BAD_BLOCK, BEGIN_AGAIN, BODY_TOO_LARGE, reply_to
from agent.coap.errors import RequestRefusedError
from agent.coap.exchange import ResponseCache
from agent.coap.udp import RETRANSMISSION_KEY_BYTES

ASSEMBLIES_MAX = 1_024
"""Uploads that are kept; beyond it the least recently active one is dropped, and its sensor begins again."""
ASSEMBLED_BYTES_MAX = 4 << 20
"""Bytes of their bodies; beyond it as well, except for the latest one."""
ARRIVED_MAX = 8_192
"""Blocks that are remembered, about 230 bytes each."""

_REFUSED = b""
_NAME_BYTES = 8


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
    name: bytes
    """No other upload has it."""
    touched: float
    chain: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    def append(self, block: Block, now: float) -> None:
        self.touched, self.complete = now, not block.more
        self.chain = blake2b(self.chain + block.retransmission_key, digest_size=RETRANSMISSION_KEY_BYTES).digest()
        self.body += block.payload


class Blocks:
    """The current uploads, and recently completed ones, whose last block may be retransmitted.

    The network may deliver a datagram again after the sensor has begun its next upload (RFC 7252 section 4.5). Blocks
    carry nothing that binds them to their upload, so each one that arrives is remembered, with its upload or as
    refused: it must neither begin nor continue another upload.
    """

    def __init__(self, body_bytes_max: int, lifetime_seconds: float) -> None:
        self._body_bytes_max = body_bytes_max
        self._lifetime_seconds = lifetime_seconds
        self._assemblies: OrderedDict[Hashable, _Assembly] = OrderedDict()
        self._arrived = ResponseCache(lifetime_seconds, ARRIVED_MAX)
        """By the key of each block, the name of the upload that has it."""
        self._begun = 0
        self._bytes = 0
        """Of all bodies."""

    def add(self, key: Hashable, block: Block, now: float) -> CompleteBody | None:
        """Add a block to its upload; return None where more are expected. A retransmitted block changes nothing.

        Raise RequestRefusedError, with nothing changed where no upload could have the block, or it has arrived before
        but this upload does not have it. A new block that does not continue the upload ends it.
        """
        self._check(block)
        self._forget(now)
        upload = self._arrived.get(block.retransmission_key, now)
        assembly = self._assemblies.get(key)
        if upload is None:
            assembly = self._extend(key, block, now)
        elif assembly is None or assembly.name != upload:
            raise RequestRefusedError(BEGIN_AGAIN)
        if not assembly.complete or block.more:
            return None
        return CompleteBody(bytes(assembly.body), block.retransmission_key if block.start == 0 else assembly.chain)

    def _check(self, block: Block) -> None:
        if (block.more and len(block.payload) != block.size) or len(block.payload) > block.size:
            raise RequestRefusedError(BAD_BLOCK)
        if block.start + len(block.payload) > self._body_bytes_max:
            raise RequestRefusedError(reply_to(BODY_TOO_LARGE, self._body_bytes_max))

    def _extend(self, key: Hashable, block: Block, now: float) -> _Assembly:
        """Add a block that is new; one that does not continue the upload ends it."""
        self._arrived.put(block.retransmission_key, now, _REFUSED)
        assembly = self._remove(key)
        if block.start == 0:
            self._begun += 1
            assembly = _Assembly(self._begun.to_bytes(_NAME_BYTES, "big"), now)
        if assembly is None or assembly.complete or block.start != len(assembly.body):
            raise RequestRefusedError(BEGIN_AGAIN)
        assembly.append(block, now)
        self._arrived.put(block.retransmission_key, now, assembly.name)
        self._assemblies[key] = assembly
        self._bytes += len(assembly.body)
        while len(self._assemblies) > (1 if self._bytes > ASSEMBLED_BYTES_MAX else ASSEMBLIES_MAX):
            self._remove(next(iter(self._assemblies)))
        return assembly

    def _remove(self, key: Hashable) -> _Assembly | None:
        assembly = self._assemblies.pop(key, None)
        if assembly is not None:
            self._bytes -= len(assembly.body)
        return assembly

    def _forget(self, now: float) -> None:
        """Drop the uploads that were inactive for too long."""
        while self._assemblies:
            key, oldest = next(iter(self._assemblies.items()))
            if now - oldest.touched < self._lifetime_seconds:
                return
            self._remove(key)
