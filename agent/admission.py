"""Whose events are taken: an authenticated sender's own, and those of devices that the configuration lets in."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache

from agent.decode import Decoded, Rejected
from agent.delivery import Delivery
from agent.settings import DevicesSettings

_DEVICES_KEPT = 4_096


class ForbiddenError(Exception):
    """The sender may not say this; the message says why."""


class Admission:
    """The check of identities, for every way in."""

    def __init__(self, settings: DevicesSettings) -> None:
        self._lists = bool(settings.allow or settings.deny)
        self._admits = lru_cache(maxsize=_DEVICES_KEPT)(lambda device: _admits(settings, device))

    def screen(self, delivery: Delivery, decoded: Decoded) -> Decoded:
        """Give what may be taken; raise ForbiddenError where that is nothing.

        A sender that speaks as another device is refused with all that it says: else a stranger could claim a
        victim's next fingerprint first. A device that is not let in is put aside, so that it does not block those
        that come through the same relay.
        """
        if delivery.authenticated is not None and not delivery.relay:
            _check_own(delivery.authenticated, decoded)
        return self._without_denied(decoded) if self._lists else decoded

    def _without_denied(self, decoded: Decoded) -> Decoded:
        denied = [event.device for event in decoded.events if not self._admits(event.device)]
        if not denied:
            return decoded
        if len(denied) == len(decoded.events):
            raise ForbiddenError(f"device {denied[0]!a} is not let in here ([devices] allow, deny)")
        return replace(
            decoded,
            events=tuple(event for event in decoded.events if self._admits(event.device)),
            rejected=(*decoded.rejected, *(_rejected(device) for device in denied)),
        )


def _check_own(authenticated: str, decoded: Decoded) -> None:
    own = unicodedata.normalize("NFC", authenticated)
    devices = {event.device for event in decoded.events} | {rejected.device for rejected in decoded.rejected}
    if devices - {own}:
        raise ForbiddenError(f"these credentials are those of {own!a} and of no other device")


def _rejected(device: str) -> Rejected:
    """Note the device, and nothing of what it said."""
    return Rejected(device, "this device is not let in here ([devices] allow, deny)", b"")


def _admits(settings: DevicesSettings, device: str) -> bool:
    if _matches(device, settings.deny):
        return False
    return not settings.allow or _matches(device, settings.allow)


def _matches(device: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(device, pattern) for pattern in patterns)
