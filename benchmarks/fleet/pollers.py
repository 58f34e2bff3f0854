"""Thousands of simulated gateways poll their receipts of one broker, by the requests that the agent's poller sends.

The requests are recorded from the product's own client (`GroupOffsets`), and each simulated gateway sends them again
after the pauses of the product's poller (`receipts.poller.pauses`), one after the other, on a connection of its own. A
gateway has five connections for its receipts; here each has one, since a process may have 20,000 open files.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Final

from confluent_kafka import Producer, TopicPartition

from agent.config.settings import KafkaSettings
from agent.forward.kafka.client import LastError, open_admin, open_reader
from agent.forward.receipts.group_offsets import GroupOffsets
from agent.forward.receipts.poller import pauses
from benchmarks.fleet import receipt_topic
from benchmarks.fleet.recorder import LENGTH_BYTES, Recorded, Recorder, Traffic
from benchmarks.report import Figure, progress
from contract import topics
from contract.receipt import GROUP_DEFAULT, Receipt
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.settings import Listener

PARTITIONS: Final = topics.PARTITIONS
CONNECTS_AT_ONCE: Final = 200
SOURCES: Final = 8
"""Addresses of this machine that connections come from, since each has 28,000 ports."""
ANSWER_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS: Final = 1.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
SEED: Final = 11


class Connection(asyncio.Protocol):
    """A connection on which one request at a time is answered."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Resolve the answer once all of it is there."""
        self._buffer += data
        size = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if len(self._buffer) >= max(size, LENGTH_BYTES + 1) and self._answer is not None and not self._answer.done():
            del self._buffer[:size]
            self._answer.set_result(size)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("closed by the broker"))

    async def ask(self, request: bytes) -> int:
        """Send a request; return the size of its answer."""
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionResetError("closed by the broker")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return await self._answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


@dataclass(slots=True)
class Polled:
    """What the gateways did within one measurement."""

    polls: int = 0
    failures: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """The broker's use of the machine at one time."""

    at: float
    cpu_seconds: float
    memory_bytes: int
    open_files: int


def usage(pid: int) -> BrokerUsage:
    """Return the use by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return BrokerUsage(
        time.monotonic(), (int(fields[11]) + int(fields[12])) / TICKS, pages * os.sysconf("SC_PAGE_SIZE"), files
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one way to get receipts: those of the connection's beginning, and those of one poll."""

    name: str
    first: Recorded
    poll: Recorded


@contextmanager
def recorded_broker(folder: Path) -> Iterator[tuple[Broker, Recorder]]:
    """Run a broker with the topic, and a recorder in front of a second listener."""
    listener, advertised = ports.free(2)
    with (
        Broker(folder, Listener("PLAINTEXT", listener, advertised)) as broker,
        Recorder(advertised, listener) as recorder,
    ):
        broker.create_topics(topics.EVENTS)
        broker.create_topics(receipt_topic.TOPIC, partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(100 * PARTITIONS):
            producer.produce(topics.EVENTS, b"{}", str(number).encode())
        producer.flush()
        yield broker, recorder


def record_offsets(recorder: Recorder, port: int) -> Requests:
    """Record the product's poll of the group's offsets, of all partitions."""
    settings, errors, stop = KafkaSettings(f"127.0.0.1:{port}", topics.EVENTS), LastError(), threading.Event()
    recorder.cut()
    reader, admin = open_reader(settings, GROUP_DEFAULT, errors), open_admin(settings, errors)
    group = GroupOffsets(admin, reader, settings.topic, errors)
    view = group.read_view(range(PARTITIONS), stop)
    metadata = str(Receipt("0" * 36, 0, view.topic_id))
    committed = [TopicPartition(settings.topic, number, 50, metadata=metadata) for number in range(PARTITIONS)]
    reader.commit(offsets=committed, asynchronous=False)
    group.read_view(range(PARTITIONS), stop)
    time.sleep(SETTLE_SECONDS)
    first = recorder.cut()
    assert group.read_view(range(PARTITIONS), stop).partitions[0].receipt is not None
    time.sleep(SETTLE_SECONDS)
    poll = recorder.cut()
    reader.close()
    return Requests("group's offsets", first, poll)


def record_topic(recorder: Recorder, port: int, seconds: float) -> Requests:
    """Record a reader of the topic of receipts that waits at the broker for so long."""
    servers = f"127.0.0.1:{port}"
    receipt_topic.write(servers, PARTITIONS, GROUP_DEFAULT)
    time.sleep(SETTLE_SECONDS)
    recorder.cut()
    reader = receipt_topic.open_reader(servers, seconds)
    assert receipt_topic.read_latest(reader)["topic_id"] == "A" * 22
    time.sleep(SETTLE_SECONDS)
    first = recorder.cut()
    reader.close()
    [fetch] = [one for one, name in zip(first.requests, first.names, strict=True) if name == "Fetch"][:1]
    return Requests("topic of receipts", first, Recorded(0, [fetch], {"Fetch": Traffic(1, len(fetch), 0, 1)}))


class Gateways:
    """Simulated gateways, each with an open connection to the broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections: list[Connection] = []

    async def connect(self, count: int, first: Sequence[bytes]) -> float:
        """Open connections, a bounded number of them at a time; return how many a second became ready."""
        turns = asyncio.Semaphore(CONNECTS_AT_ONCE)
        loop, started = asyncio.get_running_loop(), time.monotonic()

        async def one(number: int) -> None:
            async with turns:
                source = (f"127.0.0.{2 + number % SOURCES}", 0)
                _, made = await loop.create_connection(Connection, "127.0.0.1", self._port, local_addr=source)
                for request in first:
                    await made.ask(request)
                self.connections.append(made)

        await asyncio.gather(*(one(number) for number in range(count)))
        return count / (time.monotonic() - started)

    async def poll(
        self, requests: Sequence[bytes], interval: float, seconds: float, *, waits: bool, settle: float
    ) -> Polled:
        """Poll after the product's pauses, or again at once where the broker waits; count after `settle` seconds."""
        load, begin = Polled(), time.monotonic() + settle
        tasks = [
            asyncio.ensure_future(
                self._keep_polling(one, Random(SEED + number), requests, interval, waits, load, begin)
            )
            for number, one in enumerate(self.connections)
        ]
        await asyncio.sleep(settle + seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return load

    async def _keep_polling(
        self,
        connection: Connection,
        random: Random,
        requests: Sequence[bytes],
        interval: float,
        waits: bool,
        load: Polled,
        begin: float,
    ) -> None:
        pause = pauses(random, interval)
        await asyncio.sleep(next(pause))
        while True:
            started = time.monotonic()
            try:
                for request in requests:
                    await connection.ask(request)
            except (OSError, TimeoutError):
                load.failures += 1
                return
            if time.monotonic() >= begin:
                load.polls += 1
                load.seconds.append(time.monotonic() - started)
            if not waits:
                await asyncio.sleep(next(pause))

    def close(self) -> None:
        """Close all connections."""
        for one in self.connections:
            one.close()


def measure(folder: Path, gateways: int, intervals: Sequence[float], seconds: float) -> list[Figure]:
    """Return the figures of both ways at each interval."""
    with recorded_broker(folder) as (broker, recorder):
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        advertised = recorder.port
        offsets = record_offsets(recorder, advertised)
        figures = [_described(offsets)]
        figures += asyncio.run(_run(broker, port, offsets, gateways, intervals, seconds))
        by_topic = [record_topic(recorder, advertised, interval) for interval in intervals]
        figures.append(_described(by_topic[0]))
        for interval, requests in zip(intervals, by_topic, strict=True):
            figures += asyncio.run(_run(broker, port, requests, gateways, [interval], seconds))
    return figures


def _described(requests: Requests) -> Figure:
    poll, first = requests.poll, requests.first
    details = {
        "names": list(poll.names),
        "sent_bytes": poll.total.sent_bytes,
        "received_bytes": poll.total.received_bytes,
        "connections": first.connections,
        "first_requests": len(first.requests),
        "first_bytes": first.total.sent_bytes + first.total.received_bytes,
    }
    return Figure(f"{requests.name}, requests of a poll", len(poll.requests), "requests", details=details)


async def _run(
    broker: Broker, port: int, requests: Requests, count: int, intervals: Sequence[float], seconds: float
) -> list[Figure]:
    """Connect the gateways, and measure the broker at each interval."""
    pid = broker.process.pid
    assert pid is not None
    gateways = Gateways(port)
    before = usage(pid)
    rate = await gateways.connect(count, requests.first.requests[:1])
    progress(f"{requests.name}: {count:,} connections, {rate:,.0f}/s")
    after = usage(pid)
    details = {
        "open_files": after.open_files - before.open_files,
        "broker_cpu_us": (after.cpu_seconds - before.cpu_seconds) / count * 1e6,
        "memory_bytes": (after.memory_bytes - before.memory_bytes) / count,
    }
    figures = [Figure(f"{requests.name}, {count:,} connections opened", rate, "connections/s", details=details)]
    waits = "Fetch" in requests.poll.names
    for interval in intervals:
        measured = max(seconds, 2 * interval)
        before = usage(pid)
        # Where the broker waits, all have asked once after an interval, and are answered after another one.
        settle = 2 * interval if waits else SETTLE_SECONDS
        load = await gateways.poll(requests.poll.requests, interval, measured, waits=waits, settle=settle)
        after = usage(pid)
        cores = (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at)
        figures.append(_figure(requests, count, interval, load, measured, cores, after))
        progress(f"{figures[-1].name}: {figures[-1].value:,.0f}/s, {cores:.2f} cores, {figures[-1].details}")
    gateways.close()
    return figures


def _figure(
    requests: Requests, count: int, interval: float, load: Polled, seconds: float, cores: float, used: BrokerUsage
) -> Figure:
    rate = load.polls * len(requests.poll.requests) / seconds
    cuts = [*quantiles(load.seconds, n=100)] if len(load.seconds) > 1 else [0.0] * 99
    details = {
        "polls_per_second": load.polls / seconds,
        "failures": load.failures,
        "p50_ms": cuts[49] * 1e3,
        "p99_ms": cuts[98] * 1e3,
        "broker_cores": cores,
        "broker_cpu_us_per_poll": cores * seconds / load.polls * 1e6 if load.polls else 0.0,
        "broker_memory_bytes": used.memory_bytes,
        "broker_open_files": used.open_files,
    }
    return Figure(f"{requests.name}, {count:,} gateways, every {interval:g} s", rate, "requests/s", details=details)
