"""Notices that the rules of identity are not those with which the store was used before.

An event has the fingerprint of the rules under which it arrived. Where its rule has changed, it is not recognised when
the sensor sends it again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple
from hashlib import sha256
from typing import Final

from agent.config.identity_rules import IdentityRule
from agent.store.facts import IDENTITY_RULES
from agent.store.port import Outbox, OutboxError

EFFECT: Final = (
    "what was accepted before and is sent again is a new event where its rule has changed; the table may have it twice"
)

_log = logging.getLogger(__name__)


def are_changed(rules: Sequence[IdentityRule], fact: str | None) -> bool:
    """Whether the rules are others than those that the store's fact notes; it notes none before the first start."""
    return fact is not None and fact != _digest(rules)


def note_rules(rules: Sequence[IdentityRule], outbox: Outbox) -> None:
    """Log a change of the rules, once, and note the present ones; blocks."""
    try:
        before = outbox.fact(IDENTITY_RULES)
        if are_changed(rules, before):
            _log.warning("identity=rules-changed effect=%r", EFFECT)
        if before != _digest(rules):
            outbox.set_fact(IDENTITY_RULES, _digest(rules))
    except OutboxError as error:  # the disk is full: the next start says it again
        _log.warning("identity=rules-not-noted reason=%r", str(error))


def _digest(rules: Sequence[IdentityRule]) -> str:
    return sha256(json.dumps([astuple(rule) for rule in rules]).encode()).hexdigest()[:32]
