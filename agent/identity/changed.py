"""Notices changes in how identities are made, since the store was used before.

An event has the fingerprint of the rules and the mapping under which it arrived. Where one of them has changed, it is
not recognised when the sensor sends it again.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from hashlib import sha256
from typing import Final

from agent.config.settings import IdentitySettings, MappingSettings, MqttSettings
from agent.delivery import Media
from agent.store.facts import IDENTITY_BASIS
from agent.store.port import Outbox, OutboxError

EFFECT: Final = "what was accepted before by it and is sent again is a new event; the table may have it twice"
GONE_MAX: Final = 100
"""Settings that were removed and are still noted, the latest ones: one may come back changed."""

Basis = Mapping[str, str]
"""A digest of each setting that decides about fingerprints, by its name."""

_log = logging.getLogger(__name__)


def basis(identity: IdentitySettings, mqtt: MqttSettings, mappings: MappingSettings) -> Basis:
    """Return the digests of the settings behind fingerprints; raise MappingError for an unusable mappings folder."""
    found: dict[str, object] = {"identity.rules": [astuple(rule) for rule in identity.rules]}
    for subscription in mqtt.subscriptions:
        media = subscription.media
        assert not isinstance(media, str)  # the configuration has been read as a whole
        found[f"mqtt.subscriptions {subscription.topic}"] = media.name if isinstance(media, Media) else media.identity
    if mappings.own or mappings.folder is not None:
        from agent.mappings.catalog import configured  # with jmespath, which most gateways need not

        found |= {f"mappings {one.name}": one.identity for one in configured(mappings.own, mappings.folder)}
    return {name: sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32] for name, value in found.items()}


def changed(now: Basis, fact: str | None) -> Sequence[str]:
    """Return the names whose digest differs from the noted one; none before the first start."""
    before = json.loads(fact) if fact is not None else {}
    return [name for name, digest in now.items() if before.get(name, digest) != digest]


def note_basis(now: Basis, outbox: Outbox) -> None:
    """Log each change, once, and note the present basis; blocks."""
    try:
        before = outbox.fact(IDENTITY_BASIS)
        for name in changed(now, before):
            _log.warning("identity=changed by=%r effect=%r", name, EFFECT)
        gone = [one for one in json.loads(before or "{}").items() if one[0] not in now]
        if before != (fact := json.dumps(dict(gone[-GONE_MAX:]) | dict(now))):
            outbox.set_fact(IDENTITY_BASIS, fact)
    except OutboxError as error:  # the disk is full: the next start says it again
        _log.warning("identity=not-noted reason=%r", str(error))
