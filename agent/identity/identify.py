"""The identity of events: fingerprint, the shared day, the bound, the similarity key."""

from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from agent.config.identity_rules import IdentityRule
from agent.config.settings import IdentitySettings
from agent.store.port import Candidate
from contract import cbor
from contract.event import Event
from contract.fingerprint import FINGERPRINT_BYTES, IDENTITY_FIELDS, fingerprint, identity, needs_label
from contract.record import ClockTrust, SharedDay, encode_tail, read_data

ZIGBEE2MQTT: Final = "zigbee2mqtt"
"""The `via` whose `time` is Zigbee2MQTT's stamp and not the sensor's own."""
ZIGBEE_REPEAT_SECONDS: Final = 2.0
"""Within which equal data of one Zigbee device is marked: the radio's retries can reach Zigbee2MQTT twice."""

_DEVICES_KEPT: Final = 4_096
"""Devices whose rule is cached."""
_CONTENT_PERSON: Final = b"oncegate-amb-1"


def identify(event: Event, via: str, received: int, clock: ClockTrust, settings: IdentitySettings) -> Candidate:
    """Return the candidate for the store: the event with its fingerprint, shared day and bound."""
    tail = encode_tail(event, received, via)
    rule = rule_for(settings.rules, event.device) if settings.rules else None
    fields = IDENTITY_FIELDS if rule is None else rule.fields
    similar: int | None = None
    similar_seconds: float | None = None
    if rule is not None or event.time is None or event.id is not None:
        similar = _similarity_key(event, tail)
    elif via == ZIGBEE2MQTT:
        similar, similar_seconds = _similarity_key(event, tail), ZIGBEE_REPEAT_SECONDS
    if needs_label(event, fields):
        key, key_seconds = None, 0.0
        if rule is not None and rule.window_seconds is not None:
            key, key_seconds = _content(event, fields), rule.window_seconds
        return Candidate(
            event, None, tail, received, clock, SharedDay.LABEL, received, similar, None, fields, key, key_seconds
        )
    timed = event.time is not None and "time" in fields
    shared, bound = (SharedDay.TIME, event.time) if timed else (SharedDay.NONE, _bound(received, settings))
    return Candidate(
        event, fingerprint(event, fields), tail, received, clock, shared, bound, similar, similar_seconds, fields
    )


@lru_cache(maxsize=_DEVICES_KEPT)
def rule_for(rules: tuple[IdentityRule, ...], device: str) -> IdentityRule | None:
    """Return the first rule whose pattern matches the device, None where none does."""
    return next((rule for rule in rules if fnmatchcase(device, rule.device)), None)


def _bound(received: int, settings: IdentitySettings) -> int | None:
    horizon = settings.resend_horizon_seconds
    return None if horizon is None else received - int(horizon * 1000)


def _content(event: Event, fields: tuple[str, ...]) -> bytes:
    """Return the retransmission key of an ambiguous event, valid for the rule's window."""
    content = cbor.encode_map(identity(event, fields))
    return blake2b(content, digest_size=FINGERPRINT_BYTES, person=_CONTENT_PERSON).digest()


def _similarity_key(event: Event, tail: bytes) -> int:
    """Return a hash of device, type, id, boot and data: the fields that a duplicate with another identity would share.

    The data is that of the tail, byte for byte. The numbers are hashed as text: equal ones alone share a hash, unlike
    -1 and -2 in Python.
    """
    return hash((event.device, event.type, repr((event.id, event.boot)), read_data(tail)))
