"""The tables of [[mappings]], and what subscriptions name of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.config.mistakes import read_entries, suggestion
from agent.config.subscriptions import FORMATS, Subscription

if TYPE_CHECKING:
    from agent.mappings.mapping import EventMapping

_EXPECTED = "expected tables with name, device, data and more: docs/mappings.md"


def read_mappings(value: object) -> tuple[EventMapping, ...]:
    """Read the tables of [[mappings]]; raise ValueError."""
    if value == []:
        return ()
    from agent.mappings import mapping  # with jmespath, which most gateways need not

    return read_entries(value, mapping.read, _EXPECTED)


def resolve(subscriptions: tuple[Subscription, ...], known: Mapping[str, EventMapping]) -> tuple[Subscription, ...]:
    """Return the subscriptions with their mappings; raise ValueError for an unknown format."""
    for subscription in subscriptions:
        if isinstance(subscription.media, str) and subscription.media not in known:
            hint = suggestion(subscription.media, (*FORMATS, *known))
            raise ValueError(f"unknown format {subscription.media!r}{hint}; see oncegate mappings")
    return tuple(replace(one, media=known[one.media]) if isinstance(one.media, str) else one for one in subscriptions)
