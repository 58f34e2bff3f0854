"""Which events are accepted: a sender's own, of devices that the configuration allows, and no more than a share."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import ceil
from typing import Final

from agent.clock import Clock
from agent.config.settings import DevicesSettings
from agent.config.ways import Via
from agent.decode.decoded import Decoded, Rejected
from agent.delivery import Delivery, ForeignFormat
from contract.event import Event

_DEVICES_KEPT: Final = 4_096
_DENIED: Final = "is not allowed ([devices] allow, deny)"
_UNPROVEN: Final = "has credentials: use them"
_ANONYMOUS: Final = "this gateway takes events only from authenticated senders ([devices] require)"
_PROOFS: Final = {"coap": "oscore", "http": "token"}
"""How a sender proves who it is, by `via`."""
AUTH, RELAY = "auth", "relay"
"""The entries of `ext` that state how the sender was authenticated, and which relay it is."""


class ForbiddenError(Exception):
    """The sender may not send these events; the message contains the reason."""


class UnauthenticatedError(ForbiddenError):
    """The sender has to prove who it is."""


class Admission:
    """Checks that senders may send events of their devices, for all protocols."""

    def __init__(self, settings: DevicesSettings) -> None:
        self._lists = bool(settings.allow or settings.deny)
        self._admits_anonymous = settings.require != "authenticated"
        self._admits = lru_cache(maxsize=_DEVICES_KEPT)(lambda device: _admits(settings, device))
        self._protected: frozenset[str] = frozenset()

    def protect(self, devices: Iterable[str]) -> None:
        """Admit events of these devices only from themselves, authenticated, or from a relay.

        Without regard to case, which parts of a URN lack (RFC 8141 section 3.1): no look-alike passes for them.
        """
        self._protected |= {_caseless(device) for device in devices}

    def screen(self, delivery: Delivery, decoded: Decoded) -> Decoded:
        """Return the admitted events, which state who has sent them; raise ForbiddenError where none is.

        A sender that claims to be another device is refused with all its events: otherwise it could claim a victim's
        next fingerprint first. Events of a device that is not admitted are rejected, so that they do not block others
        of the same relay.
        """
        if delivery.authenticated is None:
            if not self._admits_anonymous:
                raise UnauthenticatedError(_ANONYMOUS)
            if self._protected:
                decoded = _without(decoded, lambda device: _caseless(device) not in self._protected, _UNPROVEN)
            if delivery.media.__class__ is ForeignFormat:
                _state(decoded, {})
        else:
            if not delivery.relay:
                _check_own(delivery.authenticated, decoded)
            relay = {RELAY: delivery.authenticated} if delivery.relay else {}
            _state(decoded, {AUTH: _PROOFS.get(delivery.via, delivery.via), **relay})
        return _without(decoded, self._admits, _DENIED) if self._lists else decoded


def _caseless(device: str) -> str:
    return unicodedata.normalize("NFC", device).casefold()


def _without(decoded: Decoded, admits: Callable[[str], bool], reason: str) -> Decoded:
    denied = [event.device for event in decoded.events if not admits(event.device)]
    if not denied:
        return decoded
    if len(denied) == len(decoded.events):
        raise ForbiddenError(f"device {denied[0]!a} {reason}")
    return Decoded(
        tuple(event for event in decoded.events if admits(event.device)),
        (*decoded.rejected, *(Rejected(device, f"this device {reason}", b"") for device in denied)),
        decoded.skipped,
    )


def _state(decoded: Decoded, sender: Mapping[str, str]) -> None:
    """Put the proven facts about the sender into `ext`, in place of the payload's claims."""
    for event in decoded.events:
        said = event.ext or {}
        if sender or AUTH in said or RELAY in said:
            event.ext = {**sender, **{name: one for name, one in said.items() if name not in (AUTH, RELAY)}}


def _check_own(authenticated: str, decoded: Decoded) -> None:
    own = unicodedata.normalize("NFC", authenticated)
    devices = {event.device for event in decoded.events} | {rejected.device for rejected in decoded.rejected}
    if devices - {own}:
        raise ForbiddenError(f"the credentials belong to {own!a} only")


def _admits(settings: DevicesSettings, device: str) -> bool:
    is_denied = any(fnmatchcase(device.casefold(), pattern.casefold()) for pattern in settings.deny)
    return not is_denied and (not settings.allow or any(fnmatchcase(device, pattern) for pattern in settings.allow))


def is_denial(reason: str) -> bool:
    """Whether an event was rejected because of its device, and not because of its content."""
    return reason.endswith((_DENIED, _UNPROVEN, _ANONYMOUS))


NAMES_MAX: Final = 8_192
"""Of devices and addresses that are remembered."""
BURST_SECONDS: Final = 10
"""So much may come at once, and any delivery that comes after a pause."""

_OF_A_BROKER: Final = (Via.MQTT, Via.ZIGBEE2MQTT)
Name = str | tuple[str]
"""A device, or (an address,), which no device's name equals."""


def _counted(delivery: Delivery, devices: Iterable[str]) -> Counter[Name]:
    """Return how many events count for each name.

    A relay's address stands for many devices, as that of an MQTT broker does: only their devices count. An address is
    the same over all protocols.
    """
    counts: Counter[Name] = Counter(devices)
    if not delivery.relay and delivery.via not in _OF_A_BROKER:
        counts[(delivery.authenticated or delivery.sender.rpartition("://")[2],)] = counts.total()
    return counts


class Numbers:
    """The largest numbers by name, at most `NAMES_MAX`; any other name has the largest forgotten number.

    So nobody's number becomes less by the names that others take.
    """

    def __init__(self) -> None:
        self._kept: dict[Name, float] = {}
        self._forgotten = 0.0

    def get(self, name: Name) -> float:
        """Return the number of a name, never less than it was set to."""
        return self._kept.get(name, self._forgotten)

    def set(self, name: Name, number: float) -> None:
        """Set a name's number, which is not less than before."""
        self._kept[name] = number
        if len(self._kept) > NAMES_MAX:
            smallest = sorted(self._kept, key=self._kept.__getitem__)[: NAMES_MAX // 8]  # so many, as it takes ms
            self._forgotten = self._kept[smallest[-1]]
            for one in smallest:
                del self._kept[one]

    def clear(self) -> None:
        self._kept.clear()
        self._forgotten = 0.0


class Quota:
    """The fair share of each device and of each address: how many events a second they may send.

    Counts events by the generic cell rate algorithm (ITU-T I.371): one number for each device and address.
    """

    def __init__(self, events_per_second_max: int, clock: Clock) -> None:
        self._event_ms = 1000 / events_per_second_max
        self._clock = clock
        self._paid_until = Numbers()
        """Until when a name would have sent what it has, at the rate; in monotonic milliseconds."""

    def charge(self, delivery: Delivery, events: Sequence[Event]) -> int:
        """Count a delivery's events and return 0; or count none, and return after how many seconds they fit."""
        counts = _counted(delivery, [event.device for event in events])
        now = float(self._clock.monotonic_ms())
        due = max(self._paid_until.get(name) for name in counts)
        if due - now > BURST_SECONDS * 1000:
            return ceil((due - now) / 1000) - BURST_SECONDS
        for name, count in counts.items():
            self._paid_until.set(name, max(now, self._paid_until.get(name)) + count * self._event_ms)
        return 0


LOOK_MS: Final = 1_000
"""How often the store is asked what has been delivered."""
EVENT_BYTES: Final = 100
"""What a stored event takes beside its content."""


class StoredShares:
    """The bytes of undelivered events in the store, by device and by address, since the agent's start.

    Whose events were delivered the store does not tell: each delivery reduces all shares alike.
    """

    def __init__(self, bytes_max: int, undelivered: Callable[[], int], clock: Clock) -> None:
        self._bytes_max = bytes_max
        self._undelivered = undelivered
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._events = 0.0
        """Undelivered events that are counted here."""
        self._scale = 1.0
        """The part of all counted bytes that is undelivered."""
        self._bytes = Numbers()

    def admit(self, delivery: Delivery, events: Iterable[Event]) -> bool:
        """Whether none of the names has its share already."""
        if (now := self._clock.monotonic_ms()) - self._looked_ms >= LOOK_MS:
            self._looked_ms = now
            self._reduce(self._undelivered())
        most = self._bytes_max / self._scale
        return all(self._bytes.get(name) < most for name in _counted(delivery, [event.device for event in events]))

    def add(self, delivery: Delivery, stored: Iterable[tuple[str, int]], *, has_share: bool) -> None:
        """Count what is new in the store: the device and the bytes of each event of a delivery."""
        for device, size in stored:
            self._events += 1
            for name in _counted(delivery, [device]) if has_share else ():
                self._bytes.set(name, self._bytes.get(name) + (size + EVENT_BYTES) / self._scale)

    def _reduce(self, undelivered: int) -> None:
        if undelivered < self._events:
            self._scale *= undelivered / self._events
            self._events = float(undelivered)
        if self._scale < 1e-9 or not self._events:
            self._bytes.clear()
            self._scale = 1.0
