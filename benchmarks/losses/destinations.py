"""Reads what has arrived at the end of each path."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterable
from typing import BinaryIO
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from contract import topics

_SECONDS = 30.0
_NUMBER = re.compile(rb"temperature\W+(\d+)")


def numbers(texts: Iterable[bytes]) -> Counter[int]:
    """Count the events in these texts by their numbers; a text may have several, or none where it is the gateway's."""
    return Counter(int(number) for text in texts for number in _NUMBER.findall(text))


def topic(servers: str, name: str) -> Counter[int]:
    """Count the events of a topic, without those of aborted transactions."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": str(uuid4()),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = [TopicPartition(name, number, 0) for number in range(topics.PARTITIONS)]
    reader.assign(partitions)
    texts: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        record = reader.poll(_SECONDS)
        if record is None:
            raise TimeoutError(f"{name}: no record and no end within {_SECONDS:g} s")
        error = record.error()
        if error is None:
            texts.append(record.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(record.partition())
        else:
            raise KafkaException(error)
    reader.close()
    return numbers(texts)


def stream(address: tuple[str, int]) -> Counter[int]:
    """Count the messages of the NATS stream `E`."""
    texts: list[bytes] = []
    create = b'{"stream_name":"E","config":{"deliver_subject":"d","ack_policy":"none","deliver_policy":"all"}}'
    with socket.create_connection(address, timeout=_SECONDS) as reader:
        lines = reader.makefile("rb")
        reader.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB i.> 1\r\nSUB d 2\r\n')
        reader.sendall(b"PUB $JS.API.STREAM.INFO.E i.info 0\r\n\r\n")
        last = int(re.findall(rb'"messages":(\d+)', _message(lines, b"i.info"))[0])
        reader.sendall(b"PUB $JS.API.CONSUMER.CREATE.E i.c %d\r\n%s\r\n" % (len(create), create))
        while len(texts) < last:
            texts.append(_message(lines, b"d"))
    return numbers(texts)


def _message(lines: BinaryIO, subject: bytes) -> bytes:
    """Return the next message of a subject."""
    while line := lines.readline():
        if line.startswith((b"MSG ", b"HMSG ")):
            text = lines.read(int(line.split()[-1]) + 2)
            # A consumer's messages keep the subject under which they were published.
            if line.split()[1] == subject or (subject == b"d" and line.split()[2] == b"2"):
                return text
    raise ConnectionError("nats: closed")
