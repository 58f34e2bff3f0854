"""The recent activity for the status page: devices and the latest outcomes.

All of it is in memory, bounded, and lost with the process.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from agent.delivery import Answer
from agent.store.port import Candidate, Outcome, Reject
from contract.fields import OBJECTS

DEVICES_MAX: Final = 2_000
"""Devices kept; the least recently active one is evicted."""
FEED_MAX: Final = 200
SILENT_MS: Final = 86_400_000
RETIRED_MS: Final = 7 * SILENT_MS
TAIL_BYTES_MAX: Final = 1_024
"""The values of an event are kept where its tail is not longer."""
_NOTHING: Final[frozenset[bytes]] = frozenset()


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
    tail: bytes = b""
    """Of the latest event; empty where it is too long."""


class Activity:
    """Records outcomes; written in the event loop's thread, read from others."""

    def __init__(self) -> None:
        self._devices: OrderedDict[str, DeviceActivity] = OrderedDict()
        self._feed: deque[dict[str, Any]] = deque(maxlen=FEED_MAX)
        self._number = 0

    def stored(self, via: str, candidates: Sequence[Candidate], rejects: Sequence[Reject], outcome: Outcome) -> None:
        """Record the outcome of a delivery that the store has accepted."""
        fingerprints, new = outcome.fingerprints, outcome.new
        suspected = frozenset(outcome.suspected) if outcome.suspected else _NOTHING
        for at, candidate in enumerate(candidates):
            device = candidate.event.device
            fingerprint = fingerprints[at] if at < len(fingerprints) else candidate.fingerprint or b""
            seen = self._device(device, candidate.received)
            if at < len(new) and new[at]:
                seen.events += 1
                seen.possible_duplicates += fingerprint in suspected
                seen.tail = tail = candidate.tail if len(candidate.tail) <= TAIL_BYTES_MAX else b""
                self._add(candidate.received, "accepted", device, via, fingerprint, "", tail)
            else:
                seen.duplicates += 1
                self._add(candidate.received, "duplicate", device, via, fingerprint, "")
        for reject in rejects:
            seen = self._device(reject.device, reject.received)
            seen.rejected += 1
            seen.reason = reject.reason
            self._add(reject.received, "rejected", reject.device, reject.via, b"", reject.reason)

    def refused(self, via: str, sender: str, answer: Answer, received: int) -> None:
        self._add(received, "refused", sender, via, b"", f"{answer.status.value}: {answer.reason}")

    def devices(self, limit: int = DEVICES_MAX) -> list[dict[str, object]]:
        """Return the devices, most recently active first."""
        latest = islice(reversed(list(self._devices.items())), limit)
        return [_device_document(device, seen) for device, seen in latest]

    def device(self, device: str) -> dict[str, object] | None:
        """Return one device; None where it was not active lately."""
        seen = self._devices.get(device)
        return None if seen is None else _device_document(device, seen)

    def silent_devices(self, now: int) -> int:
        """Count the devices whose last event is between a day and a week ago; older ones count as retired."""
        since, until = now - RETIRED_MS, now - SILENT_MS
        return sum(since < seen.last_seen <= until for seen in list(self._devices.values()))

    def feed(self, after: int) -> list[dict[str, object]]:
        """Return the entries after a number, in order."""
        latest = [entry for entry in list(self._feed) if entry["number"] > after]
        return [_with_values({**entry, "fingerprint": entry["fingerprint"].hex()}) for entry in latest]

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

    def _add(
        self, received: int, outcome: str, device: str, via: str, fingerprint: bytes, reason: str, tail: bytes = b""
    ) -> None:
        self._number += 1
        self._feed.append(
            {
                "number": self._number,
                "received": received,
                "outcome": outcome,
                "device": device,
                "via": via,
                "fingerprint": fingerprint,
                "reason": reason,
                "tail": tail,
            }
        )


def _device_document(device: str, seen: DeviceActivity) -> dict[str, object]:
    return {"device": device, **_with_values(asdict(seen))}


def _with_values(document: dict[str, Any]) -> dict[str, object]:
    """Replace the tail of a document by the event's data, units and ext."""
    entries = json.loads(b"{" + document.pop("tail") + b"}")
    return {**document, **{name: entries[name] for name in OBJECTS if name in entries}}
