"""The operator's MQTT subscriptions: topic filter, format, and the level that names the device; and [[mappings]]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.config.mistakes import read_entries, suggestion
from agent.delivery import Media

if TYPE_CHECKING:
    from agent.mappings.mapping import EventMapping

FORMATS = {
    "json": Media.JSON,
    "cbor": Media.CBOR,
    "senml-json": Media.SENML_JSON,
    "senml-cbor": Media.SENML_CBOR,
}
DEVICE = "{device}"
"""The level of a topic that names the device."""
TOPIC_BYTES_MAX = 65_535
"""MQTT 5 section 1.5.4."""
UNIDENTIFIED = "its mapping has neither id nor time: a message that the broker delivers again is another event"
_EXPECTED = (
    f"expected tables with topic (a filter; the level {DEVICE} names the device) and format ({', '.join(FORMATS)}, "
    "or a mapping)"
)
_MAPPINGS_EXPECTED = "expected tables with name, device, data and more: docs/mappings.md"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One entry of [[mqtt.subscriptions]]."""

    topic: str
    """The filter, with `{device}` for the level that names the device, where one does."""
    media: Media | str | EventMapping
    """A format of ours, or a mapping: by its name until the configuration has been read as a whole."""

    @property
    def identifies(self) -> bool:
        """Whether duplicates can be recognised, as far as the format decides it."""
        return isinstance(self.media, Media | str) or self.media.identifies

    @property
    def filter(self) -> str:
        """The filter in MQTT's syntax."""
        return self.topic.replace(DEVICE, "+")

    def matches(self, topic: str) -> bool:
        """Whether a topic matches the filter (MQTT 5 section 4.7)."""
        from paho.mqtt.client import topic_matches_sub  # slow to load, and there where messages are

        return topic_matches_sub(self.filter, topic)

    def device(self, topic: str) -> str | None:
        """Return the device that a topic names, None where it names none."""
        levels = self.topic.split("/")
        return topic.split("/")[levels.index(DEVICE)] or None if DEVICE in levels else None


def read_subscriptions(value: object) -> tuple[Subscription, ...]:
    """Read the tables of [[mqtt.subscriptions]]; raise ValueError."""
    return read_entries(value, _read, _EXPECTED)


def base_topic(value: object) -> str:
    """Read the topic below which Zigbee2MQTT publishes; empty for none."""
    if not isinstance(value, str) or any(sign in value for sign in "+#{}") or value.strip("/") != value:
        raise ValueError("expected a topic without wildcards, or an empty text")
    return value


def _read(table: object) -> Subscription:
    if not isinstance(table, dict) or set(table) != {"topic", "format"}:
        raise ValueError(_EXPECTED)
    topic, name = table["topic"], table["format"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"expected as format one of {', '.join(FORMATS)}, or the name of a mapping")
    if not isinstance(topic, str) or not _is_filter(topic):
        raise ValueError("expected as topic an MQTT filter, in which one level may be {device}")
    return Subscription(topic, FORMATS.get(name, name))


def _is_filter(topic: str) -> bool:
    """Whether a topic is a valid filter; shared subscriptions are refused, since they have no order and no session."""
    levels = topic.split("/")
    if not topic or len(topic.encode()) > TOPIC_BYTES_MAX or "\0" in topic or levels[0] == "$share":
        return False
    return (
        all(level in ("+", DEVICE) or not set("+{}") & set(level) for level in levels)
        and all("#" not in level for level in levels[:-1])
        and (levels[-1] == "#" or "#" not in levels[-1])
        and levels.count(DEVICE) <= 1
    )


def read_mappings(value: object) -> tuple[EventMapping, ...]:
    """Read the tables of [[mappings]]; raise ValueError."""
    if value == []:
        return ()
    from agent.mappings import mapping  # with jmespath, which most gateways need not

    return read_entries(value, mapping.read, _MAPPINGS_EXPECTED)


def resolve(subscriptions: tuple[Subscription, ...], known: Mapping[str, EventMapping]) -> tuple[Subscription, ...]:
    """Return the subscriptions with their mappings; raise ValueError for an unknown format."""
    for subscription in subscriptions:
        if isinstance(subscription.media, str) and subscription.media not in known:
            hint = suggestion(subscription.media, (*FORMATS, *known))
            raise ValueError(f"unknown format {subscription.media!r}{hint}; see oncegate mappings")
    return tuple(replace(one, media=known[one.media]) if isinstance(one.media, str) else one for one in subscriptions)
