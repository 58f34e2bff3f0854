"""The alternative to the store: Telegraf with its disk buffer, which drains a backlog of the same events to Kafka."""

import os
import shutil
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ lacks OffsetSpec

from benchmarks.agent import contenders
from benchmarks.agent.contenders import Server
from benchmarks.store_drain import Drain
from benchmarks.store_fill import candidates, events
from contract import topics
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker

TOPIC = "telegraf"
BUFFER = "buffer"
BATCH = 10_000
"""Metrics per write; after each the buffer rewrites the rest of a segment, so that 1,000 would halve the rate."""
SAMPLE = 1_000
"""Distinct metrics that Telegraf writes into its buffer; it syncs each one, so a million would take long."""
SEGMENT_BYTES = 20_971_520
"""Size of a segment of the buffer, as in tidwall/wal."""
SECONDS_MAX = 240
FILL_SECONDS_MAX = 120
POLL_SECONDS = 0.05
ADMIN_SECONDS_MAX = 10.0
_MARK = b'"received":'
"""Occurs once in each event's text, which the buffer stores unchanged."""


def fill(folder: Path, broker: Broker, waiting: int) -> Path:
    """Buffer metrics while the broker is stopped; return a copy of the buffer, for any number of drains."""
    folder.mkdir()
    broker.create_topics(TOPIC)
    broker.stop()
    _fill(folder, broker.bootstrap_servers, waiting)
    broker.start()
    return (folder / BUFFER).rename(folder / "filled")


def drain(folder: Path, broker: Broker, filled: Path, waiting: int) -> Drain:
    """Start Telegraf on a copy of the buffer, and wait until it is drained."""
    shutil.copytree(filled, folder / BUFFER)
    os.sync()
    try:
        with _telegraf(folder, broker.bootstrap_servers) as server:
            return _watch(server, broker.bootstrap_servers, waiting)
    finally:
        shutil.rmtree(folder / BUFFER)


def _watch(server: Server, servers: str, waiting: int) -> Drain:
    records = Records(servers)
    server.process.wait_until(lambda: records.count() > 0, "the first records are in the topic")
    first, start, cpu = records.count(), time.perf_counter(), server.cpu_seconds()
    while (now := records.count()) < waiting and time.perf_counter() - start < SECONDS_MAX:
        time.sleep(POLL_SECONDS)
    seconds, used = time.perf_counter() - start, server.cpu_seconds() - cpu
    if now == first:
        raise ServiceError(f"telegraf: all {waiting:,} records arrived at once: nothing to measure")
    return Drain((now - first) / seconds, used / (now - first) * 1e6)


def _fill(folder: Path, servers: str, waiting: int) -> None:
    """Buffer a sample by Telegraf, and replicate its files to a multiple of it."""
    texts = [b"{" + candidate.tail + b"}" for candidate in candidates(events(0), SAMPLE)]
    with _telegraf(folder, servers) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sensor:
            sensor.sendall(b"".join(text + b"\n" for text in texts))
        server.process.wait_until(lambda: _buffered(folder) == SAMPLE, "the sample is buffered", FILL_SECONDS_MAX)
    (segment,) = _segments(folder)
    block, blocks = segment.read_bytes(), waiting // SAMPLE
    at_once = SEGMENT_BYTES // len(block)
    for first in range(0, blocks, at_once):
        name = f"{first * SAMPLE + 1:020d}"  # a segment is named by its first index, and its entries carry none
        (segment.parent / name).write_bytes(block * min(at_once, blocks - first))


def _buffered(folder: Path) -> int:
    return sum(segment.read_bytes().count(_MARK) for segment in _segments(folder))


def _segments(folder: Path) -> list[Path]:
    return [path for path in (folder / BUFFER).rglob("*") if path.is_file()]


def _telegraf(folder: Path, servers: str) -> AbstractContextManager[Server]:
    """Run Telegraf on its buffer, with input lines over TCP; the output must stay the same for the buffer."""
    (port,) = ports.free(1)
    agent = (
        f'flush_interval = "1s"\nmetric_batch_size = {BATCH}\nmetric_buffer_limit = 100000000\n'
        f'buffer_strategy = "disk"\nbuffer_directory = "{folder / BUFFER}"\nomit_hostname = true'
    )
    lines = (
        f'[[inputs.socket_listener]]\nservice_address = "tcp://127.0.0.1:{port}"\n'
        'data_format = "value"\ndata_type = "string"\n'
    )
    process = contenders.telegraf(folder, agent, lines, contenders.to_kafka(servers, TOPIC))
    return contenders.serving(Server(process, port), "Listening on tcp://")


class Records:
    """Counts the new records of the topic by the end offsets of its partitions."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped
        self._ends = {TopicPartition(TOPIC, number): latest for number in range(topics.PARTITIONS)}
        self._earlier = self._total()

    def count(self) -> int:
        """Return the number of records since the beginning, by one request for all end offsets."""
        return self._total() - self._earlier

    def _total(self) -> int:
        answers = self._admin.list_offsets(self._ends, request_timeout=ADMIN_SECONDS_MAX)
        return sum(answer.result(timeout=ADMIN_SECONDS_MAX).offset for answer in answers.values())
