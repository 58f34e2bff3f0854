"""Which producers a broker remembers, asked by requests of our own: no client for Python has them."""

from __future__ import annotations

import socket

DESCRIBE_PRODUCERS = 61
LIST_TRANSACTIONS = 66
REQUEST_SECONDS_MAX = 10.0
_HEADER_BYTES = 4 + 1 + 4
"""Of the answer: correlation id, tags, throttle time."""


def remembered(bootstrap_server: str, topic: str, partition: int = 0) -> int:
    """Return how many producers the leader of a partition remembers there (DescribeProducers, version 0)."""
    name = topic.encode()
    body = b"\x02" + bytes([len(name) + 1]) + name + b"\x02" + partition.to_bytes(4) + b"\x00\x00"
    answer = _ask(bootstrap_server, DESCRIBE_PRODUCERS, body)
    # Topics (one), its name, partitions (one), its number; then error code, error message (none), producers.
    at = _HEADER_BYTES + 1 + 1 + len(name) + 1 + 4
    assert answer[at : at + 2] == b"\x00\x00", f"error {int.from_bytes(answer[at : at + 2])}"
    assert answer[at + 2] == 0
    return answer[at + 3] - 1


def transactional_ids(bootstrap_server: str) -> bytes:
    """Return the answer that names the transactional ids of which a broker knows (ListTransactions, version 0)."""
    return _ask(bootstrap_server, LIST_TRANSACTIONS, b"\x01\x01\x00")


def _ask(bootstrap_server: str, kind: int, body: bytes) -> bytes:
    """Ask in version 0, with tags, without a client's name."""
    request = kind.to_bytes(2) + bytes(6) + b"\xff\xff\x00" + body
    host, port = bootstrap_server.split(":")
    with socket.create_connection((host, int(port)), REQUEST_SECONDS_MAX) as connection:
        connection.sendall(len(request).to_bytes(4) + request)
        with connection.makefile("rb") as answers:
            return answers.read(int.from_bytes(answers.read(4)))
