"""The delivery modes: what a send promises, and what all of them have in common."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.clock import Clock
from agent.forward.delivery.oversized import Oversized
from agent.forward.kafka.health import Link
from agent.forward.kafka.topic import TopicView, TopicWatch
from agent.forward.kafka.wall_steps import WallSteps
from agent.store.port import Outbox

START = 0
"""Below every position: the outbox counts from 1."""
IDLE_SECONDS_MAX = 0.5
"""How long a session waits for an event; a stop is noticed after this at the latest."""
POLL_SECONDS_MAX = 0.02
"""How long it waits for a delivery report while there is one to wait for."""
STOP_MS_MAX = 5_000
"""How long what is in flight may take to be reported and marked when the agent stops."""
FLIGHT_EVENTS_MAX = 1_000
FLIGHT_BYTES_MAX = 512 * 1024
"""Bounds of one batch, as it is read from the outbox."""


@dataclass(frozen=True, slots=True)
class Way:
    """What all sessions of a forwarder have in common."""

    topic: str
    gateway: str
    outbox: Outbox
    watch: TopicWatch
    link: Link
    clock: Clock
    oversized: Oversized
    silence_ms: int
    """How long there may be no delivery report before the broker counts as unreachable."""
    wall_steps: WallSteps
    """Since the session's clients were opened."""


class Session(Protocol):
    """One producer's life: from the lowest new event on, until something fails or the agent stops."""

    marked: int
    """Batches that this session has brought home."""

    def run(self, stop: threading.Event) -> None:
        """Send until the agent stops; raise SessionError where this producer is of no more use."""

    def close(self) -> None:
        """Abandon the producer with all that it still holds; never blocks for long, whatever the broker does."""


class Mode(Protocol):
    """What differs between the delivery modes; the forwarder does the rest."""

    fixed: Mapping[str, str | None]
    """The librdkafka properties that the promise depends on: nobody may override them, nor give those that are None."""

    def open(self, way: Way, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> Session:
        """Begin a session with the topic as it is now.

        Raises KafkaException or SessionError where that fails, ClonedError where it must not be tried again.
        """
