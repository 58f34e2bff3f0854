"""The producers that a broker keeps, read by requests built here: no Python client has them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

DESCRIBE_PRODUCERS = 61
LIST_TRANSACTIONS = 66
REQUEST_SECONDS_MAX = 10.0
_HEADER_BYTES = 4 + 1 + 4
"""Of the answer: correlation id, tags, throttle time."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer's state at a partition's leader."""

    id: int
    epoch: int
    last_sequence: int


def remembered(bootstrap_server: str, topic: str, partition: int = 0) -> list[ProducerState]:
    """Return the producers that the leader of a partition keeps there (DescribeProducers, version 0)."""
    name = topic.encode()
    body = b"\x02" + bytes([len(name) + 1]) + name + b"\x02" + partition.to_bytes(4) + b"\x00\x00"
    answer = _ask(bootstrap_server, DESCRIBE_PRODUCERS, body)
    # Topics (one), its name, partitions (one), its number; then error code, error message (none), producers.
    at = _HEADER_BYTES + 1 + 1 + len(name) + 1 + 4
    assert answer[at : at + 2] == b"\x00\x00", f"error {int.from_bytes(answer[at : at + 2])}"
    assert answer[at + 2] == 0
    count, at = answer[at + 3] - 1, at + 4
    entry = struct.Struct(">qiiqiqB")  # id, epoch, last sequence, last moment, coordinator's epoch, open offset, tags
    return [ProducerState(*entry.unpack_from(answer, at + number * entry.size)[:3]) for number in range(count)]


def transactional_ids(bootstrap_server: str) -> bytes:
    """Return the answer that names the transactional ids that a broker keeps (ListTransactions, version 0)."""
    return _ask(bootstrap_server, LIST_TRANSACTIONS, b"\x01\x01\x00")


def _ask(bootstrap_server: str, kind: int, body: bytes) -> bytes:
    """Send a request in version 0, with tags, without a client's name."""
    return _exchange(bootstrap_server, kind.to_bytes(2) + bytes(6) + b"\xff\xff\x00" + body)


def _exchange(bootstrap_server: str, request: bytes) -> bytes:
    host, port = bootstrap_server.split(":")
    with socket.create_connection((host, int(port)), REQUEST_SECONDS_MAX) as connection:
        connection.sendall(len(request).to_bytes(4) + request)
        with connection.makefile("rb") as answers:
            return answers.read(int.from_bytes(answers.read(4)))
