"""The interface of the delivery modes, and what all of them share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.clock import Clock
from agent.forward.delivery.gathering import Gathering
from agent.forward.delivery.lanes import Expiry, Turn
from agent.forward.delivery.oversized import Oversized
from agent.forward.kafka.health import Link
from agent.forward.kafka.login_files import WallSteps
from agent.forward.kafka.partitioner import BY_KEY
from agent.forward.kafka.topic import TopicView, TopicWatch
from agent.forward.kafka.uplink import Uplink
from agent.store.port import Outbox

START = 0
"""Below every position: the outbox counts from 1."""
IDLE_SECONDS_MAX = 0.5
"""How long a session waits for an event, and so the longest time until a stop takes effect."""
POLL_SECONDS_MAX = 0.02
"""How long a session waits at once for a delivery report."""
STOP_MS_MAX = 5_000
"""How long in-flight batches may take to be reported and marked when the agent stops."""
BATCH_EVENTS_MAX = 1_000
BATCH_BYTES_MAX = 512 * 1024
"""Bounds of one batch read from the outbox."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The parts that all sessions of a forwarder share."""

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
    """Counted since the session's clients were opened."""
    uplink: Uplink | None = None
    """The cap on what is sent; None where there is none."""
    gathering: Gathering | None = None
    """None where each event is sent at once."""
    partition: int = BY_KEY
    """That of all events; BY_KEY where the key decides it."""
    lane: str = ""
    """The lane's name; empty for the default lane."""
    turn: Turn | None = None
    """The lane's turn; None where there is no other lane."""
    expiry: Expiry | None = None
    """None where events are sent whatever their age."""
    sign: Callable[[bytes, bytes, bytes], bytes] | None = None
    """Authenticates records (`contract.mac`); None where the gateway has no key."""
    confirm_ms: int = 0
    """How long acks wait at most for others that share their confirmation (`confirmation.confirm_ms`)."""


class Session(Protocol):
    """The life of one producer: from the lowest new event on, until something fails or the agent stops."""

    marked: int
    """How many batches this session has marked."""

    def run(self, stop: threading.Event) -> None:
        """Send until the agent stops; raise SessionError where this producer cannot continue."""

    def close(self) -> None:
        """Abandon the producer and its records; bounded in time, whatever the broker does."""


class Mode(Protocol):
    """The differences between the delivery modes."""

    @property
    def fixed(self) -> Mapping[str, str | None]:
        """Client properties that the guarantee depends on: users may override none, and not set those with None."""

    def open(self, context: SessionContext, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> Session:
        """Begin a session with the topic in its present state.

        Raise KafkaException or SessionError where that fails, ClonedError where it must not be retried.
        """
