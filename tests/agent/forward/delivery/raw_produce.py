"""Records written to a partition without Kafka's client: it has no context to leave a transaction hanging.

Kafka protocol, Produce version 3, and record batches of version 2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from contract.record import Record
from tests.agent.forward.kafka.producers import ProducerState, ask_plainly

_PRODUCE, _VERSION = 0, 3
_TRANSACTIONAL = 0x10
_NOW_MS = 1_763_700_000_000
_ANSWER_HEAD_BYTES = 4 + 4
"""Correlation id, and the number of topics."""


def leave_open(
    bootstrap_server: str, topic: str, transactional_id: str, state: ProducerState, records: Sequence[Record]
) -> None:
    """Append records to partition 0 as a transactional producer that the coordinator has not added there.

    The broker has to run with `transaction.partition.verification.enable=false`: it then behaves as after the loss of
    the coordinator's state.
    """
    batch = _batch(state, records)
    body = _text(transactional_id) + struct.pack(">hii", -1, 30_000, 1) + _text(topic)
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    answer = ask_plainly(bootstrap_server, _PRODUCE, _VERSION, body)
    at = _ANSWER_HEAD_BYTES + 2 + len(topic.encode()) + 4 + 4
    error = int.from_bytes(answer[at : at + 2], signed=True)
    assert not error, f"Kafka's error {error}"


def _batch(state: ProducerState, records: Sequence[Record]) -> bytes:
    encoded = b"".join(_record(number, record) for number, record in enumerate(records))
    counted = struct.pack(
        ">hiqqqhii", _TRANSACTIONAL, len(records) - 1, _NOW_MS, _NOW_MS, state.id, state.epoch, state.last_sequence + 1,
        len(records),
    ) + encoded  # fmt: skip
    rest = struct.pack(">ibI", -1, 2, _crc32c(counted)) + counted
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(number: int, record: Record) -> bytes:
    key, value, headers = record
    listed = b"".join(_sized(name.encode()) + _sized(content) for name, content in headers)
    body = b"\x00" + _varint(0) + _varint(number) + _sized(key) + _sized(value)
    return _sized(body + _varint(len(headers)) + listed)


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _varint(number: int) -> bytes:
    """Encode a number that is not negative, in zigzag form."""
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _crc32c(content: bytes) -> int:
    """Compute the checksum of RFC 3720 appendix B.4, bit by bit."""
    crc = 0xFFFF_FFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF
