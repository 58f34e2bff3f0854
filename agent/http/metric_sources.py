"""The sources of the metrics, apart from their text, for which Prometheus' client is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.certificates.expiry import Certificate
from agent.clock import Clock
from agent.identity.warnings import Danger
from agent.status import GatewayStatus
from agent.store.counts import EventCounts
from agent.store.write.transaction import CommitDurations
from agent.telemetry.counters import DeliveryCounts, Transport
from agent.telemetry.links import LinkReport
from agent.telemetry.process_state import CappedUplink


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the metrics."""

    counts: Mapping[str, DeliveryCounts]
    transports: Mapping[str, Transport]
    """By `via`."""
    responses: Mapping[int, int]
    """HTTP responses by status code."""
    dangers: Counter[Danger]
    commits: Callable[[], CommitDurations]
    outbox: Callable[[], EventCounts]
    lanes: Callable[[], Mapping[str, EventCounts]]
    """The same of each lane; empty without lanes."""
    trouble: Callable[[], str]
    """Why nothing can be stored; empty where events can be."""
    fill_ratio: Callable[[], float]
    """The used part of the bound, of the fullest lane."""
    free_bytes: Callable[[], int]
    """What the state folder's file system has left for the agent's user."""
    silent_devices: Callable[[], int]
    store_bytes: Callable[[], int]
    store_bytes_max: int
    log_bytes: Callable[[], int]
    written_bytes: Callable[[], int]
    status: Callable[[], GatewayStatus]
    clock: Clock
    links: Callable[[], Mapping[str, LinkReport]]
    uplink: CappedUplink | None
    """None where no cap is set."""
    certificates: Callable[[], Sequence[Certificate]]
