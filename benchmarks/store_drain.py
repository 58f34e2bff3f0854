"""How fast a backlog drains to a real broker while sensors continue, and the latency of their acks meanwhile."""

import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from agent.store.layout import FILE_NAME
from agent.store.schema import database, tables
from benchmarks.agent import contenders
from benchmarks.report import p99
from benchmarks.store_fill import DEVICES, GATEWAY
from benchmarks.usage import cpu_seconds
from contract.record import HEADERS
from simulators import wire
from simulators.services.kafka.broker import Broker
from simulators.services.process import Process

TOPIC = "oncegate.events"
INGEST_PER_SECOND = 1_000
WARMING = "warming"
WARMING_RECORDS = 500_000
WARMING_BATCH = 5_000
WARMING_HEADERS: dict[str, str | bytes | None] = {f"header-{number}": b"value" for number in range(len(HEADERS))}
RECORD_BYTES = 300
SECONDS_MAX = 240
AFTERWARDS_SECONDS = 5.0
STEP_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class Drain:
    """The measurement from the first event that has left to the last, and where sensors continue, of their acks."""

    per_second: float
    cpu_us: float
    """Of the process, for each event that left."""
    ack_p99_ms: float = 0.0
    arriving_per_second: float = 0.0
    ack_p99_ms_afterwards: float = 0.0
    """With as many events arriving, while nothing waits."""

    @property
    def ack_growth(self) -> float:
        """How many times as long an ack takes meanwhile."""
        return self.ack_p99_ms / self.ack_p99_ms_afterwards


@contextmanager
def agent_on(
    folder: Path,
    kafka: str,
    python: Path,
    store: str = 'max_bytes = "64GiB"',
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Process, int]]:
    """Run an agent on the store in a folder, with these lines of its sections [kafka] and [store].

    Yield it, and its CoAP port.
    """
    settings = (
        f'[store]\n{store}\n[coap]\nbind = "[::1]:0"\n[http]\nenabled = false\n'
        f"[receipts]\nenabled = false\n[kafka]\n{kafka}\n"
    )
    with contenders.agent(folder, GATEWAY, settings, python, environment) as agent:
        agent.wait_for_log(contenders.AGENT_READY)
        yield agent, int(agent.log().split(contenders.AGENT_READY)[1].split("]:")[1].split()[0])


def drain(python: Path, broker: Broker, folder: Path, waiting: int) -> Drain:
    """Start the agent on the store in a folder, which has a backlog; wait until it is drained."""
    with agent_on(folder, f'bootstrap_servers = "{broker.bootstrap_servers}"', python) as (agent, port):
        return _watch(folder / "state" / FILE_NAME, waiting, port, agent.pid)


def warm(broker: Broker) -> None:
    """Warm the broker up before the measurements, so that its JIT compiler does not take half of the CPU."""
    broker.create_topics(WARMING)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    for number in range(WARMING_RECORDS):
        value = os.urandom(RECORD_BYTES // 2) * 2
        producer.produce(WARMING, value, b"%d" % (number % DEVICES), headers=WARMING_HEADERS)
        if number % WARMING_BATCH == 0:
            producer.flush()
    producer.flush()


def _watch(store: Path, waiting: int, port: int, pid: int) -> Drain:
    with closing(Sensors(port)) as sensors, closing(database.open_for_reading(store)) as reader:
        done = delivered(reader)
        while delivered(reader) == done:
            sensors.work(0.05)
        done, start, cpu, acked = delivered(reader), time.perf_counter(), cpu_seconds(pid), len(sensors.seconds)
        while (now := delivered(reader)) < waiting:
            sensors.work(0.05)
            if time.perf_counter() - start > SECONDS_MAX:
                break
        seconds, used, drained = time.perf_counter() - start, cpu_seconds(pid) - cpu, len(sensors.seconds)
        sensors.work(AFTERWARDS_SECONDS)
        meanwhile, afterwards = sensors.seconds[acked:drained], sensors.seconds[drained:]
        acks = (p99(meanwhile) * 1000, len(meanwhile) / seconds, p99(afterwards) * 1000)
        return Drain((now - done) / seconds, used / (now - done) * 1e6, *acks)


def delivered(reader: sqlite3.Connection) -> int:
    """Return the number of records at the broker, from the first position on."""
    batches = [batch.last for batch in tables.load_batches(reader)]
    return max([*batches, *(last for _, last in tables.load_processed(reader))], default=0)


class Sensors:
    """Sends confirmable events over CoAP at a constant rate, and records the latency of each ack."""

    def __init__(self, port: int, per_second: int = INGEST_PER_SECOND) -> None:
        self._per_second = per_second
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.connect(("::1", port))
        self._socket.setblocking(False)
        self._start = time.perf_counter()
        self._sent: dict[int, float] = {}
        self._number = 0
        self.seconds: list[float] = []

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def work(self, seconds: float) -> None:
        """Send due events and receive ACKs for a while."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.step()
            time.sleep(STEP_SECONDS)

    def step(self) -> None:
        """Send due events and receive the ACKs that have arrived."""
        while self._number < (time.perf_counter() - self._start) * self._per_second:
            self._send()
        for message_id in self._received():
            if (sent := self._sent.pop(message_id, None)) is not None:
                self.seconds.append(time.perf_counter() - sent)

    def _send(self) -> None:
        self._number += 1
        body = b'{"device":"urn:dev:mac:0000000000000001","id":%d,"data":{"t":%d}}' % (self._number, self._number % 90)
        self._sent[self._number % 65536] = time.perf_counter()
        self._socket.send(wire.Request(body, 50).datagram(self._number % 65536, self._number.to_bytes(4, "big")))

    def _received(self) -> Iterator[int]:
        while True:
            try:
                message = wire.parse(self._socket.recv(1500))
            except BlockingIOError:
                return
            if message is not None:
                yield message.message_id
