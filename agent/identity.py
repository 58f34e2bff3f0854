"""Who an event is: its fingerprint, the day its copies share, the earliest moment of a copy, and its likeness."""

from __future__ import annotations

from agent.settings import IdentitySettings
from agent.store.port import Candidate
from contract.event import Event
from contract.fingerprint import fingerprint, needs_label
from contract.record import Clock, Shared, encode_tail

ZIGBEE2MQTT = "zigbee2mqtt"
"""The way in whose `time` is no word of the sensor's own, but Zigbee2MQTT's stamp."""
ZIGBEE_REPEAT_SECONDS = 2.0
"""Within which equal data of one Zigbee device is marked: the radio's own retries can reach Zigbee2MQTT twice."""


def identify(event: Event, via: str, received: int, clock: Clock, settings: IdentitySettings) -> Candidate:
    """Make an event ready for the store."""
    tail = encode_tail(event, received, via)
    if needs_label(event):
        return Candidate(event, None, tail, received, clock, Shared.LABEL, received, _likeness(event, tail))
    if event.time is not None:
        suspicious, seconds = None, None
        if event.id is not None:
            suspicious = _likeness(event, tail)
        elif via == ZIGBEE2MQTT:
            suspicious, seconds = _likeness(event, tail), ZIGBEE_REPEAT_SECONDS
        return Candidate(event, fingerprint(event), tail, received, clock, Shared.TIME, event.time, suspicious, seconds)
    horizon = settings.resend_horizon_seconds
    bound = None if horizon is None else received - int(horizon * 1000)
    return Candidate(event, fingerprint(event), tail, received, clock, Shared.NONE, bound, _likeness(event, tail))


def _likeness(event: Event, tail: bytes) -> int:
    """Hash device, type, id, boot and data: what a copy under another identity would share.

    The data is taken as it stands in the tail, whose last entries are data and units.
    """
    at = tail.find(b'"data":')
    return hash((event.device, event.type, event.id, event.boot, tail[at:] if at >= 0 else b""))
