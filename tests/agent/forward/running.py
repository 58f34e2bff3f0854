"""Run a forwarder or the receipts in a thread, as the agent does."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random

import pytest

from agent.clock import Clock, SystemClock
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.forwarder import Forwarder
from agent.forward.kafka.uplink import open_uplink
from agent.forward.modes.lanes import ForwardedLane
from agent.forward.receipts.poller import ReceiptPoller
from agent.forward.receipts.round import SharedRound
from agent.store.port import Outbox
from agent.telemetry.links import Links

STOP_SECONDS_MAX = 60.0
SILENCE_MS = 1_000
"""Silence after which the broker counts as unreachable: less than in production."""
GATEWAY = "gw-1"


class ShiftedClock(SystemClock):
    """The machine's clocks, with shifts that a test sets."""

    wall_shift_ms = 0
    monotonic_shift_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_shift_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.monotonic_shift_ms


@contextmanager
def forwarding(
    settings: KafkaSettings,
    outbox: Outbox,
    gateway: str = GATEWAY,
    *,
    lane: ForwardedLane | None = None,
    clock: Clock | None = None,
    shared: SharedRound | None = None,
) -> Iterator[Links]:
    """Forward while the block runs; yield the reported states of its connection."""
    clock = clock or SystemClock()
    links = Links(clock)
    lane = lane or ForwardedLane(uplink=open_uplink(settings, clock), gather_seconds=settings.gather_seconds)
    parts = (settings, gateway, outbox, clock, links, Random(7))
    with running(Forwarder(*parts, silence_ms=SILENCE_MS, lane=lane, shared=shared).run):
        yield links


class DeathError(Exception):
    """Simulates the end of the agent at this point."""


def run_until_death(settings: KafkaSettings, outbox: Outbox, gateway: str) -> None:
    """Forward until something raises DeathError."""
    parts = (settings, gateway, outbox, SystemClock(), Links(SystemClock()), Random(7))
    with pytest.raises(DeathError):
        Forwarder(*parts, lane=ForwardedLane()).run(threading.Event())


@contextmanager
def receipting(
    kafka: KafkaSettings,
    outbox: Outbox,
    gateway: str = GATEWAY,
    *,
    enabled: bool = True,
    any_commit: bool = False,
    shared: SharedRound | None = None,
) -> Iterator[Links]:
    """Poll receipts frequently while the block runs; yield the reported states."""
    links = Links(SystemClock())
    settings = ReceiptSettings(enabled=enabled, poll_seconds=0.1, any_commit=any_commit)
    with running(ReceiptPoller(kafka, settings, gateway, outbox, links, Random(7), shared=shared).run):
        yield links


@contextmanager
def running(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function until the block ends; the block raises its error, and fails if it does not end.

    The thread is not joined: one that hangs in the client would block the test, and the end of the whole run.
    """
    stop = threading.Event()
    end: Future[None] = Future()

    def work() -> None:
        try:
            run(stop)
        except BaseException as error:  # noqa: BLE001  # raised below, in the block
            end.set_exception(error)
        else:
            end.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        end.result(STOP_SECONDS_MAX)
