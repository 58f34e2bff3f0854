"""Sessions under a cap: the clients' reports of what they send are processed, also while nothing is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from agent.clock import SystemClock
from agent.forward.forwarder import SILENCE_MS
from agent.forward.kafka.health import REACHABLE
from agent.forward.kafka.uplink import Properties, Uplink
from agent.forward.modes.lanes import ForwardedLane, Turn
from agent.telemetry.links import LinkName
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CAP = 40_000
CLIENTS = {"at-least-once": 2, "exactly-once": 3, "at-most-once": 2}
REPORTS = 5
"""Reports of each client that are awaited: a client has queued some before the wait begins."""


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


@pytest.mark.parametrize("mode", CLIENTS)
@pytest.mark.parametrize("events", [0, 10])
def test_the_reports_of_all_clients_are_processed_while_there_are_no_events_or_another_lane_has_its_turn(
    kafka: KafkaTopic, gateway: str, events: int, mode: str, outbox: MemoryOutbox
) -> None:
    asked: dict[Turn, int] = {}
    other, turn = (Turn(SystemClock(), priority, asked) for priority in (10, 0))
    outbox.append(*readings(events))
    other.ask(has_events=bool(events))
    uplink = CountedUplink()
    lane = ForwardedLane(turn=turn, uplink=uplink)
    with forwarding(kafka.settings(mode), outbox, gateway, silence_ms=SILENCE_MS, lane=lane) as links:
        wait_until(lambda: links.state(LinkName.KAFKA) == REACHABLE, "the session begins")
        wait_until(lambda: len(uplink.processed) == CLIENTS[mode], "its clients are open")
        before = uplink.processed.copy()

        def all_processed() -> bool:
            other.ask(has_events=bool(events))
            return all(uplink.processed[client] >= count + REPORTS for client, count in before.items())

        wait_until(all_processed, "the reports of all clients are processed", seconds=20)
        assert outbox.new == events
