"""The recent activity for the status page: devices and the latest outcomes.

All of it is in memory, bounded, and lost with the process.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import NamedTuple

from agent.delivery import Answer, Delivery, Status
from agent.store.port import Candidate, Outcome, Reject

DEVICES_MAX = 2_000
"""Devices kept; the least recently active one is evicted."""
FEED_MAX = 200


@dataclass(slots=True)
class DeviceActivity:
    """The counts of one device since the agent started."""

    last_seen: int = 0
    """In milliseconds since 1970 UTC, by the gateway's clock."""
    events: int = 0
    duplicates: int = 0
    possible_duplicates: int = 0
    rejected: int = 0
    reason: str = ""
    """Of the latest rejection."""


class FeedEntry(NamedTuple):
    """One line of the live feed."""

    number: int
    received: int
    outcome: str
    device: str
    via: str
    fingerprint: bytes
    reason: str


class Activity:
    """Records outcomes; written in the event loop's thread, read from others."""

    def __init__(self) -> None:
        self._devices: OrderedDict[str, DeviceActivity] = OrderedDict()
        self._feed: deque[FeedEntry] = deque(maxlen=FEED_MAX)
        self._number = 0

    def stored(self, via: str, candidates: Sequence[Candidate], rejects: Sequence[Reject], outcome: Outcome) -> None:
        """Record the outcome of a delivery that the store has accepted."""
        new, suspected = iter(outcome.new), frozenset(outcome.suspected)
        fingerprints = iter(outcome.fingerprints)
        for candidate in candidates:
            device = candidate.event.device
            fingerprint = next(fingerprints, candidate.fingerprint or b"")
            seen = self._device(device, candidate.received)
            if next(new, False):
                seen.events += 1
                seen.possible_duplicates += fingerprint in suspected
                self._add(candidate.received, "accepted", device, via, fingerprint, "")
            else:
                seen.duplicates += 1
                self._add(candidate.received, "duplicate", device, via, fingerprint, "")
        for reject in rejects:
            seen = self._device(reject.device, reject.received)
            seen.rejected += 1
            seen.reason = reject.reason
            self._add(reject.received, "rejected", reject.device, reject.via, b"", reject.reason)

    def refused(self, delivery: Delivery, answer: Answer, received: int) -> None:
        """Record a delivery that was refused as a whole."""
        if answer.status is not Status.DURABLE:
            reason = f"{answer.status.value}: {answer.reason}"
            self._add(received, "refused", delivery.authenticated or delivery.sender, delivery.via, b"", reason)

    def devices(self, limit: int = DEVICES_MAX) -> list[dict[str, object]]:
        """Return the devices, most recently active first."""
        latest = islice(reversed(list(self._devices.items())), limit)
        return [{"device": device, **asdict(seen)} for device, seen in latest]

    def feed(self, after: int) -> list[dict[str, object]]:
        """Return the entries after a number, in order."""
        return [
            {**entry._asdict(), "fingerprint": entry.fingerprint.hex()}
            for entry in list(self._feed)
            if entry.number > after
        ]

    def _device(self, device: str, received: int) -> DeviceActivity:
        seen = self._devices.get(device)
        if seen is None:
            if len(self._devices) >= DEVICES_MAX:
                self._devices.popitem(last=False)
            seen = self._devices[device] = DeviceActivity()
        else:
            self._devices.move_to_end(device)
        seen.last_seen = received
        return seen

    def _add(self, received: int, outcome: str, device: str, via: str, fingerprint: bytes, reason: str) -> None:
        self._number += 1
        self._feed.append(FeedEntry(self._number, received, outcome, device, via, fingerprint, reason))
