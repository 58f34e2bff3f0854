"""Reads what has arrived at the end of each path."""

import re
import socket
from collections import Counter
from collections.abc import Iterable
from typing import BinaryIO

from simulators.evidence.topic import Topic, values

_SECONDS = 30.0
_NUMBER = re.compile(rb"temperature\W+(\d+)")


def numbers(texts: Iterable[bytes]) -> Counter[int]:
    """Count the events in these texts by their numbers; a text may have several, or none where it is the gateway's."""
    return Counter(int(number) for text in texts for number in _NUMBER.findall(text))


def topic(servers: str, name: str) -> Counter[int]:
    """Count the events of a topic, without those of aborted transactions."""
    return numbers(values(Topic(servers, name)))


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
