"""A TCP link behind which a broker offers only older versions of its requests, as an older service does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

from tests.agent.forward.links import TcpLink

METADATA, DESCRIBE_TOPIC_PARTITIONS, LIST_OFFSETS = 3, 75, 2
WITHOUT_TOPIC_IDS = {METADATA: 9, DESCRIBE_TOPIC_PARTITIONS: None}
"""Topic ids came with version 10 of Metadata (KIP-516)."""
_ENTRY = struct.Struct(">hhhB")
_NEVER = 32_767


class VersionLink(TcpLink):
    """Limit the versions in the answer to the first request of each connection, which is ApiVersions."""

    def __init__(self, port: int, target: int, limits: Mapping[int, int | None]) -> None:
        """Prepare the link; `limits` are the highest versions by request, None for a request that is not offered."""
        super().__init__(port, target)
        self._limits = limits

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError, struct.error):
            size = _read(far, 4)
            near.sendall(size + self._limited(_read(far, int.from_bytes(size))))
            super()._answer(far, near)

    def _limited(self, answer: bytes) -> bytes:
        """Return the answer (version 3 or later: correlation id, error, compact array) with the limited versions."""
        changed = bytearray(answer)
        count = answer[6] - 1
        assert 0 < count < 127
        for at in range(7, 7 + count * _ENTRY.size, _ENTRY.size):
            key, low, high, tags = _ENTRY.unpack_from(answer, at)
            assert tags == 0
            if key in self._limits:
                limit = self._limits[key]
                low, high = (_NEVER, _NEVER) if limit is None else (low, min(high, limit))
                _ENTRY.pack_into(changed, at, key, low, high, tags)
        return bytes(changed)


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := source.recv(count - len(data))):
            raise OSError("the connection has ended")
        data += more
    return data
