"""The agent of a gateway: the real service, life after life, on one card."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import runtime, service
from agent.coap import udp as real_udp
from agent.coap.udp import Endpoint, Received, endpoint_of
from agent.config.lanes import Lane
from agent.config.settings import (
    CoapSettings,
    ForwardSettings,
    GatewaySettings,
    HttpSettings,
    KafkaSettings,
    MqttSettings,
    ReceiptSettings,
    Settings,
    StoreSettings,
)
from agent.store import flush_socket as real_flush_socket
from agent.store.event_store import EventStore
from agent.systemd.sockets import Sockets
from contract.record import ClockTrust
from tests.schedules.card import Card
from tests.schedules.loop import HOST, Network, VirtualLoop
from tests.schedules.scheduler import Process, Scheduler

GATEWAY = "gw1"
PORT = 5683
DESCRIPTOR = 1 << 20
"""Of the simulated socket: no file has it."""
POLL_SECONDS = 5.0
KEEP_SECONDS = 5.0
"""Of processed events: an event that is purged too early is gone before it is processed."""
LANES = (Lane("alarms", 10, type="alarm"),)
"""Beside the default lane, in the schedules with lanes."""


class Clocks:
    """The gateway's clocks: the wall clock may be wrong, and the boot changes with a power cut."""

    def __init__(self, scheduler: Scheduler, start_ms: int) -> None:
        self._scheduler = scheduler
        self._start_ms = start_ms
        self.offset_ms = 0
        self.boots = 1
        self.trusted = ClockTrust.TRUSTED

    def wall_ms(self) -> int:
        return self._start_ms + self.offset_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._scheduler.now * 1000)

    def uptime_ms(self) -> int:
        return self.monotonic_ms()

    def boot(self) -> str:
        return f"00000000-0000-4000-8000-{self.boots:012d}"

    def trust(self) -> ClockTrust:
        return self.trusted


class UdpSocket:
    """As agent.coap.udp.UdpSocket, on the simulated network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting: list[Received] = []
        self.descriptor = DESCRIPTOR
        self.address = (HOST, PORT, 0, 0)
        self.receive_buffer_bytes = 1 << 20

    def __enter__(self) -> UdpSocket:
        loop = cast("VirtualLoop", asyncio.get_running_loop())

        def receive(datagram: bytes, source: tuple[str, int]) -> None:
            self._waiting.append((datagram, endpoint_of((f"::ffff:{source[0]}", source[1], 0, 0), b""), False))
            loop._write_to_self()

        loop.is_readable[DESCRIPTOR] = lambda: bool(self._waiting)
        self._network.bind(loop.process, (HOST, PORT), receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._network.release((HOST, PORT))

    def receive(self) -> Sequence[Received]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def send(self, datagram: bytes, endpoint: Endpoint) -> None:
        host, port = endpoint.address[:2]
        self._network.send(datagram, (HOST, PORT), (host.removeprefix("::ffff:"), port))


@dataclass(slots=True)
class Gateway:
    """One gateway over all lives of its agent."""

    _scheduler: Scheduler
    _network: Network
    _card: Card
    _settings_of: Callable[[Path], Settings]
    """Returns the agent's settings for a folder."""
    _lives: int = 0
    _stop: asyncio.Event | None = None
    _loop: VirtualLoop | None = None
    process: Process | None = None
    _stores: dict[str, EventStore] = field(default_factory=dict)
    """The latest of each lane."""

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.alive

    def replacements(self) -> dict[Any, Any]:
        """Return what the agent's modules get in place of its sockets and of the store's connection."""
        return {
            real_udp.UdpSocket: lambda bind, body_bytes_max, counters, listen: UdpSocket(self._network),
            real_flush_socket.FlushSocket: lambda *_: nullcontext(),  # no reading command runs
            runtime: SimpleNamespace(tune=lambda: None),
            EventStore: self._open_store,
        }

    def _open_store(self, *arguments: Any, lane: str = "", settings_hash: str = "") -> EventStore:
        store = self._stores[lane] = EventStore(
            *arguments, connect=self._card.connect, lane=lane, settings_hash=settings_hash
        )
        return store

    @property
    def is_idle(self) -> bool:
        """Whether all stores are open, and every event in them is processed."""
        return self.is_up and bool(self._stores) and all(map(_is_processed, self._stores.values()))

    def start(self, patch: pytest.MonkeyPatch) -> None:
        self._lives += 1
        self._card.below(patch)
        process = self.process = Process(f"agent{self._lives}")
        loop = self._loop = VirtualLoop(self._scheduler, self._network, process)
        self._stop = None

        def run() -> None:
            try:
                loop.run_until_complete(self._serve())
            finally:
                process.alive = False

        self._scheduler.spawn(process, "loop", run)

    def stop(self) -> None:
        """Ask the agent to end in order, as SIGTERM does."""
        if self._stop is not None and self._loop is not None and self.is_up:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        settings = self._settings_of(self._card.folder)
        while await service._serve_until_damaged(settings, self._stop, Sockets({})):
            self._scheduler.note("agent salvages its store")


def _is_processed(store: EventStore) -> bool:
    if not hasattr(store, "outbox"):
        return False
    progress = store._memory.progress  # without its lock: this is no thread
    return not progress._coverage.forwarded() and progress._coverage.next_new(0, progress._end) is None


def settings_of(
    folder: Path, lanes: tuple[Lane, ...], delivery: str, store_max_bytes: int, gather_seconds: float | None
) -> Settings:
    return Settings(
        GatewaySettings(GATEWAY, folder),
        KafkaSettings("kafka:9092", delivery=delivery, gather_seconds=gather_seconds),
        coap=CoapSettings(bind=f"{HOST}:{PORT}"),
        http=HttpSettings(enabled=False),
        mqtt=MqttSettings(enabled=False),
        store=StoreSettings(keep_processed_seconds=KEEP_SECONDS, max_bytes=store_max_bytes),
        receipts=ReceiptSettings(poll_seconds=POLL_SECONDS),
        forward=ForwardSettings(lanes=lanes),
    )
