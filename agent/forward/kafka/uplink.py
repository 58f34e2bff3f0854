"""The cap on the bytes that are sent to Kafka: a token bucket, corrected by what the clients report (decision 75)."""

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from agent.clock import Clock
from agent.config.settings import KafkaSettings
from agent.telemetry.process_state import UplinkState

BURST_SECONDS: Final = 1.0
"""How much may be sent at once, in seconds of the cap."""
WAITING_SECONDS_MAX: Final = 2.0
"""How much may be with the client and not acknowledged: what it sends at once after an outage."""
STATISTICS_MS: Final = 500
"""How often a client reports what it has sent."""
RATIO_FIRST: Final = 2.0
"""Bytes on the wire for each byte read from the outbox, as long as nothing is known of it."""
RATIO_MIN, RATIO_MAX = 0.02, 20.0
_MEMORY: Final = 0.8
"""The weight of earlier reports in the ratio, relative to that of the latest."""


class Uplink:
    """Decides when the next events may be sent, so that all that is sent stays within the cap.

    The events that are handed over are only an estimate: compression makes their requests smaller, and retries, heads
    and requests about the topic come in addition. So the clients report what they have written to their connections,
    which replaces the estimate. Shared by the forwarders of all lanes, each in its thread; `state` is used by any.
    """

    def __init__(self, bytes_per_second_max: int, clock: Clock) -> None:
        self._rate = bytes_per_second_max
        self._clock = clock
        self._lock = threading.Lock()
        self._at_ms = clock.monotonic_ms()
        self._balance = self._rate * BURST_SECONDS
        self._sent = 0
        self._waiting: dict[str, int] = {}
        """Events handed to the producer of each lane that it has not reported as sent."""
        self._unexplained = 0
        """Bytes sent since the latest report of sent events."""
        self._wire, self._events = 0.0, 0.0
        """The bytes and the number of the events that were sent lately."""
        self._read_bytes, self._read_events = 0.0, 0.0
        """The bytes, before compression, and the number of the events that were handed over lately."""

    @property
    def bytes_max(self) -> int:
        """How many bytes of events may be handed over at once, before compression."""
        with self._lock:
            return max(1, int(self._rate * BURST_SECONDS / self._ratio))

    def is_open(self) -> bool:
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            waiting_bytes = sum(self._waiting.values()) * self._ratio * self._mean_bytes
            earned = self._rate * (now_ms - self._at_ms) / 1000
            self._balance = min(self._balance + earned, self._rate * BURST_SECONDS + waiting_bytes)
            self._at_ms = now_ms
            return waiting_bytes < self._balance and waiting_bytes <= self._rate * WAITING_SECONDS_MAX

    def hand_over(self, events: int, size: int, lane: str) -> None:
        """Count events that are handed to the producer of a lane."""
        with self._lock:
            self._waiting[lane] = self._waiting.get(lane, 0) + events
            self._read_bytes = _MEMORY * self._read_bytes + size
            self._read_events = _MEMORY * self._read_events + events

    def producer_closed(self, lane: str) -> None:
        """Count a lane's unreported events as abandoned: its closed producer sends nothing any more."""
        with self._lock:
            self._waiting[lane] = 0

    def statistics(self, lane: str | None = None) -> dict[str, Any]:
        """Return a new client's properties for reports of what it sends; a producer names its `lane`."""
        if lane is not None:
            self.producer_closed(lane)  # the one before
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": _Reports(partial(self._report, lane))}

    def state(self) -> UplinkState:
        with self._lock:
            return UplinkState(self._rate, self._sent, self._wire / self._events if self._events else 0.0)

    @property
    def _mean_bytes(self) -> float:
        """The mean size of an event before compression."""
        return self._read_bytes / self._read_events if self._read_events else 0.0

    @property
    def _ratio(self) -> float:
        """Bytes on the wire for each byte of events."""
        if not self._events or not self._mean_bytes:
            return RATIO_FIRST
        return min(max(self._wire / self._events / self._mean_bytes, RATIO_MIN), RATIO_MAX)

    def _report(self, lane: str | None, sent_bytes: int, sent_events: int, queued_events: int) -> None:
        """Count what a client has sent since its last report; `lane` is None for a client that sends no events.

        Queued events are handed over, and not acknowledged, refused or abandoned.
        """
        with self._lock:
            self._balance -= sent_bytes
            self._sent += sent_bytes
            self._unexplained += sent_bytes
            if lane is not None:  # an empty producer has dropped the rest, such as events that it has refused
                self._waiting[lane] = max(0, self._waiting[lane] - sent_events) if queued_events else 0
            if sent_events:
                self._wire = _MEMORY * self._wire + self._unexplained
                self._events = _MEMORY * self._events + sent_events
                self._unexplained = 0
            elif not any(self._waiting.values()):
                self._unexplained = 0  # what is sent without events is no part of their cost


def open_uplink(settings: KafkaSettings, clock: Clock) -> Uplink | None:
    """Return the capped uplink; None where no cap is set."""
    return None if settings.bytes_per_second_max is None else Uplink(settings.bytes_per_second_max, clock)


class _Reports:
    """Reads the statistics of one client (librdkafka's STATISTICS.md)."""

    def __init__(self, report: Callable[[int, int, int], None]) -> None:
        self._report = report
        self._sent: dict[str, int] = {}
        self._events = 0

    def __call__(self, text: str) -> None:
        """Report the bytes that the client has written to its connections since the last call, and the events."""
        statistics = json.loads(text)
        sent = 0
        for name, broker in statistics["brokers"].items():
            before, self._sent[name] = self._sent.get(name, 0), broker["txbytes"]
            sent += max(0, broker["txbytes"] - before)
        # The count is a sum over the topic's partitions: it falls when the topic is deleted.
        events, self._events = max(0, statistics["txmsgs"] - self._events), statistics["txmsgs"]
        self._report(sent, events, statistics["msg_cnt"])
