"""The events that declare the store's gaps, and the corrections of the clock."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from agent.clock import Clock
from agent.store.gateway_events import Loss, clock_correction
from agent.store.gateway_events import gap as gap_event
from agent.store.memory import Memory
from agent.store.port import Candidate
from agent.store.read.events import Epochs
from agent.store.schema.gaps import Gap

LABEL_RANGES_MAX = 200
"""How many ranges of labels one event names."""
_ID_BYTES = 8


def declarations(gateway: str, memory: Memory, clock: Clock) -> Iterator[Candidate]:
    """Yield the gateway.gap events that are due: few, even for many gaps."""
    for reason in dict.fromkeys(gap.reason for gap in memory.undeclared):
        for loss in _losses(reason, [gap for gap in memory.undeclared if gap.reason == reason], memory.epochs):
            yield gap_event(gateway, secrets.token_hex(_ID_BYTES), loss, clock.wall_ms(), clock.trust())


def clock_corrections(gateway: str, boot: str, memory: Memory, clock: Clock) -> list[Candidate]:
    """Return the gateway.clock events for this boot's acceptances under an untrusted clock; it is trusted now."""
    wall_ms, uptime_ms = clock.wall_ms(), clock.uptime_ms()
    return [
        clock_correction(
            gateway, secrets.token_hex(_ID_BYTES), boot, labels, wall_ms - uptime_ms - one.offset_ms, wall_ms
        )
        for one in memory.untrusted_clock.ranges(boot, memory.end)
        for labels in memory.epochs.label_ranges(one.first, one.last)
    ]


def _losses(reason: str, gaps: list[Gap], epochs: Epochs) -> Iterator[Loss]:
    ranges = [labels for gap in gaps if gap.count for labels in epochs.label_ranges(gap.first, gap.last)]
    found_to = max((gap.last for gap in gaps if not gap.count), default=0)
    label = epochs.label(found_to) if epochs.covers(found_to) else None
    for at in range(0, max(len(ranges), 1), LABEL_RANGES_MAX):
        part = ranges[at : at + LABEL_RANGES_MAX]
        yield Loss(reason, sum(labels.last - labels.first + 1 for labels in part), part, label)
