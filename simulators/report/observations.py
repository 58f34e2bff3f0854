"""Aggregates of a ledger by time step and by device, in one pass and in memory independent of its length."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulators.ledger import Acked, Begun, GivenUp, Happened, Line, Refused, Reported, Sampled, Sent

STEP_MILLISECONDS = 1_000
_BINS_PER_OCTAVE = 4


@dataclass(slots=True)
class DeviceCounts:
    """The counts of one device."""

    events: int = 0
    transmissions: int = 0
    acked: int = 0
    refused: int = 0
    given_up: int = 0
    sent_max: int = 0
    """Largest number of transmissions of one event."""
    slowest_ms: int = 0


@dataclass(slots=True)
class _Open:
    device: DeviceCounts
    at: int
    sent: int = 0


@dataclass(slots=True)
class Observations:
    """Counts by time step; a latency is the sensor's time from the first transmission to the ACK."""

    run: Mapping[str, Any] = field(default_factory=dict)
    begin: int | None = None
    """Time of the first event, in milliseconds since 1970 UTC."""
    reported: Counter[int] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)
    acked: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    """The codes of the refusals."""
    latencies: dict[int, Counter[int]] = field(default_factory=dict)
    """The histogram of latencies in each step."""
    events_sent: int = 0
    """Events with a transmission at least."""
    devices: dict[str, DeviceCounts] = field(default_factory=dict)
    faults: list[Happened] = field(default_factory=list)
    samples: list[Sampled] = field(default_factory=list)

    def step(self, moment: int) -> int:
        """Return the time step of a moment."""
        return 0 if self.begin is None else max(0, moment - self.begin) // STEP_MILLISECONDS


def observe(lines: Iterable[Line]) -> Observations:
    """Return the aggregates of a ledger."""
    seen = Observations()
    opened: dict[int, _Open] = {}
    for line in lines:
        if isinstance(line, Reported):
            seen.begin = line.at if seen.begin is None else seen.begin
            device = seen.devices.setdefault(line.event.device, DeviceCounts())
            device.events += 1
            opened[line.mark] = _Open(device, line.at)
            seen.reported[seen.step(line.at)] += 1
        elif isinstance(line, Sent):
            _note_sent(seen, opened[line.mark], line)
        elif isinstance(line, Acked | Refused | GivenUp):
            _note_end(seen, opened.pop(line.mark), line)
        elif isinstance(line, Happened):
            seen.faults.append(line)
        elif isinstance(line, Sampled):
            seen.samples.append(line)
        elif isinstance(line, Begun):
            seen.run = line.run
    return seen


def quantiles(bins: Mapping[int, int], *shares: float) -> list[float]:
    """Return the latencies at these quantiles, in milliseconds; 0 for an empty histogram."""
    total = sum(bins.values())
    found: list[float] = []
    for share in shares:
        count = 0
        for number in sorted(bins):
            count += bins[number]
            if count >= share * total:
                found.append(2 ** (number / _BINS_PER_OCTAVE))
                break
        else:
            found.append(0.0)
    return found


def _note_sent(seen: Observations, event: _Open, line: Sent) -> None:
    if not event.sent:
        event.at = line.at
        seen.events_sent += 1
    event.sent += 1
    event.device.transmissions += 1
    event.device.sent_max = max(event.device.sent_max, event.sent)
    seen.sent[seen.step(line.at)] += 1


def _note_end(seen: Observations, event: _Open, line: Acked | Refused | GivenUp) -> None:
    device = event.device
    if isinstance(line, Acked):
        device.acked += 1
        step = seen.step(line.at)
        seen.acked[step] += 1
        milliseconds = max(1, line.at - event.at)
        device.slowest_ms = max(device.slowest_ms, milliseconds)
        # Bins of a quarter octave, by the binary logarithm.
        octave = milliseconds.bit_length() - 1
        number = round(_BINS_PER_OCTAVE * (octave + milliseconds / (1 << octave) - 1))
        seen.latencies.setdefault(step, Counter())[number] += 1
    elif isinstance(line, Refused):
        device.refused += 1
        seen.refused[seen.step(line.at)] += 1
        seen.codes[line.code] += 1
    else:
        device.given_up += 1
