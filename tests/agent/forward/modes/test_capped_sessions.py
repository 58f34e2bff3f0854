"""Sessions under a cap: refused events do not use it up, and the clients' reports of what they send are processed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings
from agent.forward.facts import read_oversized
from agent.forward.forwarder import SILENCE_MS
from agent.forward.kafka.health import REACHABLE
from agent.forward.kafka.uplink import Properties, Uplink
from agent.forward.modes import oversized
from agent.forward.modes.lanes import ForwardedLane, Turn
from agent.store.facts import OVERSIZED
from agent.telemetry.links import LinkName
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.events import readings
from tests.agent.forward.modes.test_oversized import LARGE, SMALL
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CAP = 40_000
MODES = ("at-least-once", "exactly-once", "at-most-once")
CLIENTS = {"at-least-once": 2, "exactly-once": 3, "at-most-once": 2}
REPORTS = 5
"""Reports of each client that are awaited: a client has queued some before the wait begins."""


@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_refused_request_does_not_use_up_the_cap(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    kafka.configure_topic("max.message.bytes", "3000")
    outbox = MemoryOutbox()
    outbox.append(*readings(15), LARGE, *readings(15, 15))
    with forwarding(replace(kafka.settings(mode), bytes_per_second_max=CAP), outbox, gateway):
        wait_until(lambda: outbox.new == 1, "all others are forwarded", seconds=60)

    assert list(read_oversized(outbox.fact(OVERSIZED))) == [16]


class CountedUplink(Uplink):
    """Counts the reports of each client that are processed."""

    def __init__(self) -> None:
        super().__init__(CAP, SystemClock())
        self.processed: Counter[Callable[[str], None]] = Counter()

    def statistics(self, lane: str | None = None) -> Properties:
        properties = super().statistics(lane)
        process = properties["stats_cb"]
        self.processed[process] = 0

        def count(text: str) -> None:
            self.processed[process] += 1
            process(text)

        return {**properties, "statistics.interval.ms": 50, "stats_cb": count}

    def await_reports(self, clients: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until further reports of all clients are processed."""
        assert len(self.processed) == clients
        before = self.processed.copy()

        def all_processed() -> bool:
            meanwhile()
            return all(self.processed[client] >= count + REPORTS for client, count in before.items())

        wait_until(all_processed, "the reports of all clients are processed", seconds=20)


@contextmanager
def capped(
    settings: KafkaSettings, outbox: MemoryOutbox, gateway: str, turn: Turn | None = None
) -> Iterator[CountedUplink]:
    """Forward while the block runs, which begins with a session."""
    uplink = CountedUplink()
    lane = ForwardedLane(turn=turn, uplink=uplink)
    with forwarding(settings, outbox, gateway, silence_ms=SILENCE_MS, lane=lane) as links:
        wait_until(lambda: links.state(LinkName.KAFKA) == REACHABLE, "the session begins")
        wait_until(lambda: len(uplink.processed) == CLIENTS[settings.delivery], "its clients are open")
        yield uplink


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("events", [0, 10])
def test_the_reports_of_all_clients_are_processed_while_there_are_no_events_or_another_lane_has_its_turn(
    kafka: KafkaTopic, gateway: str, events: int, mode: str, outbox: MemoryOutbox
) -> None:
    asked: dict[Turn, int] = {}
    other, turn = (Turn(SystemClock(), priority, asked) for priority in (10, 0))
    outbox.append(*readings(events))
    other.ask(has_events=bool(events))
    with capped(kafka.settings(mode), outbox, gateway, turn) as uplink:
        uplink.await_reports(CLIENTS[mode], lambda: other.ask(has_events=bool(events)))
        assert outbox.new == events


@pytest.mark.parametrize("mode", MODES[:2])
def test_the_reports_of_all_clients_are_processed_while_nothing_is_sent_since_too_many_events_are_held(
    kafka: KafkaTopic, gateway: str, mode: str, monkeypatch: pytest.MonkeyPatch, outbox: MemoryOutbox
) -> None:
    monkeypatch.setattr(oversized, "HELD_MAX", 1)
    outbox.append(LARGE)
    with capped(kafka.settings(mode, **SMALL), outbox, gateway) as uplink:
        wait_until(lambda: bool(read_oversized(outbox.fact(OVERSIZED))), "the event is held")
        outbox.append(*readings(10))
        uplink.await_reports(CLIENTS[mode])
        assert outbox.new == 11
