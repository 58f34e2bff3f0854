"""The fair share of each device and of each address: how many events a second they may send."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from math import ceil
from typing import Final

from agent.clock import Clock
from agent.delivery import Delivery
from contract.event import Event

NAMES_MAX: Final = 8_192
"""Of devices and addresses that are remembered; one without events for `BURST_SECONDS` is as one that is forgotten."""
BURST_SECONDS: Final = 10
"""So much may come at once, and any delivery that comes after a pause."""


class Quota:
    """Counts events by the generic cell rate algorithm (ITU-T I.371): one number for each device and address."""

    def __init__(self, events_per_second_max: int, clock: Clock) -> None:
        self._event_ms = 1000 / events_per_second_max
        self._clock = clock
        self._paid_until: OrderedDict[str, float] = OrderedDict()
        """Until when a device or address would have sent what it has sent, at the rate; in monotonic milliseconds."""

    def take(self, delivery: Delivery, events: Sequence[Event]) -> int:
        """Count a delivery's events and return 0; or count none, and return after how many seconds they fit.

        A relay's address stands for many devices, as that of an MQTT broker does: only their devices count.
        """
        counts: Counter[str] = Counter(event.device for event in events)
        if not delivery.relay and delivery.via != "mqtt":
            counts[delivery.authenticated or delivery.sender] = len(events)
        now = float(self._clock.monotonic_ms())
        due = max(self._paid_until.get(name, now) for name in counts)
        if due - now > BURST_SECONDS * 1000:
            return ceil((due - now) / 1000) - BURST_SECONDS
        for name, count in counts.items():
            self._paid_until[name] = max(now, self._paid_until.get(name, now)) + count * self._event_ms
            self._paid_until.move_to_end(name)
        while len(self._paid_until) > NAMES_MAX:
            self._paid_until.popitem(last=False)
        return 0
