"""Warns about devices whose events could share a fingerprint: counts them, and logs each device once."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from agent.store.port import Candidate, Outcome
from contract.event import Event

DEVICES_KEPT: Final = 8_192
"""Devices remembered; the one silent for longest is evicted."""
LINES_MAX: Final = 20
LINES_SECONDS: Final = 3_600.0
"""At most LINES_MAX lines are logged in this time; counting continues."""
YEAR_2000_MS: Final = 946_684_800_000
"""An earlier time is wrong; today's seconds, read as milliseconds, are in January 1970."""
_ADDRESS: Final = "coap://"

_log = logging.getLogger(__name__)


class Danger(StrEnum):
    """Why two events may have the same identity; text, whose hash is computed once, since it counts events."""

    UNNAMED = "unnamed"
    BACKWARDS = "backwards"
    EARLY = "time-before-2000"
    CASE = "case-of-device"


_ADVICE: Final = {
    Danger.UNNAMED: "the only name is an address: two sensors behind one address would be one device; send `device`",
    Danger.BACKWARDS: "event ids decreased without `boot` or `time`: after a restart, events with equal id and data"
    " would be dropped as duplicates; send `boot` or `time`",
    Danger.EARLY: "its time is before 2000: `time` is in milliseconds since 1970, not in seconds, and not the time"
    " since the device started (a mapping: time_format)",
    Danger.CASE: "another device has the same name but for upper and lower case: they are two devices; use one"
    " spelling, lower case in MAC addresses",
}


@final
@dataclass(slots=True)
class _Device:
    """What is remembered of a device."""

    dangers: tuple[Danger, ...]
    """Those that its name alone causes, for all of its events."""
    last_id: int | None = None
    """Its highest one in the latest delivery with ids that need a boot or a time; None where there was none."""


class IdentityWarnings:
    """Checks accepted events; runs in the loop's thread."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        """A monotonic clock."""
        self.counts: Counter[Danger] = Counter()
        """Endangered events since the start."""
        self._devices: OrderedDict[str, _Device] = OrderedDict()
        self._spellings: dict[int, str] = {}
        """The hash of each device's name in lower case, with the name as it was first spelt."""
        self._warned: OrderedDict[tuple[str, Danger], bool] = OrderedDict()
        """Whether it was logged."""
        self._lines = 0
        self._since = 0.0

    def check(self, candidates: Sequence[Candidate], outcome: Outcome) -> None:
        """Check a delivery's events once they are on disk."""
        if outcome.accepted < len(candidates):
            return  # duplicates may be of any age
        for candidate in candidates:
            event = candidate.event
            for danger in self._device(event.device).dangers:
                self._warn(event.device, danger)
            if _is_early(event):
                self._warn(event.device, Danger.EARLY)
        for device, number in _highest_ids(candidates).items():
            seen = self._device(device)
            if seen.last_id is not None and number < seen.last_id:
                self._warn(device, Danger.BACKWARDS)
            seen.last_id = number

    def advice(self, device: str) -> dict[str, str]:
        """Return what endangers a device's events, each with what to do; any thread may call it."""
        return {danger.value: _ADVICE[danger] for danger in Danger if (device, danger) in self._warned}

    def _device(self, name: str) -> _Device:
        """Return a device, the most recently active one now."""
        seen = self._devices.get(name)
        if seen is not None:
            self._devices.move_to_end(name)
            return seen
        spelling = self._spellings.setdefault(hash(name.lower()), name)
        dangers = (Danger.CASE,) if spelling != name else ()
        seen = self._devices[name] = _Device((*dangers, Danger.UNNAMED) if name.startswith(_ADDRESS) else dangers)
        if len(self._devices) > DEVICES_KEPT:
            silent, _ = self._devices.popitem(last=False)
            if self._spellings.get(hash(silent.lower())) == silent:
                del self._spellings[hash(silent.lower())]
        return seen

    def _warn(self, device: str, danger: Danger) -> None:
        self.counts[danger] += 1
        if self._warned.get((device, danger)):
            return
        now = self._seconds()
        if now - self._since > LINES_SECONDS:
            self._lines, self._since = 0, now
        self._lines += 1
        logged = self._warned[device, danger] = self._lines <= LINES_MAX
        if len(self._warned) > DEVICES_KEPT:
            self._warned.popitem(last=False)
        if logged:
            _log.warning("identity=%s device=%r reason=%r", danger.value, device, _ADVICE[danger])


def advice_on(event: Event) -> dict[str, str]:
    """Return what endangers an event by itself, whatever else was received, each with what to do."""
    dangers = {Danger.UNNAMED: event.device.startswith(_ADDRESS), Danger.EARLY: _is_early(event)}
    return {danger.value: _ADVICE[danger] for danger, present in dangers.items() if present}


def _is_early(event: Event) -> bool:
    return event.time is not None and event.time < YEAR_2000_MS


def _highest_ids(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return each device's highest id that identifies an event without boot or time; order within a pack is ignored."""
    highest: dict[str, int] = {}
    for candidate in candidates:
        event, fields = candidate.event, candidate.fields
        if type(event.id) is not int or "id" not in fields:
            continue
        guarded = (event.boot is not None and "boot" in fields) or (event.time is not None and "time" in fields)
        if not guarded:
            highest[event.device] = max(event.id, highest.get(event.device, event.id))
    return highest
