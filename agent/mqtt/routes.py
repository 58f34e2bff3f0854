"""Maps topics to deliveries: the subscriptions, and the meaning of their messages."""

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from paho.mqtt.subscribeoptions import SubscribeOptions

from agent.config.settings import MqttSettings
from agent.config.subscriptions import Subscription
from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from agent.decode.zigbee2mqtt import named_device
from agent.delivery import Delivery, ForeignFormat, Media
from agent.identity.identify import ZIGBEE2MQTT
from agent.mqtt.connection import Filter
from agent.mqtt.packets import Message
from agent.mqtt.zigbee_names import DEVICES, GROUPS, LIST_BYTES_MAX, Kind, ListReader, ZigbeeNames, read_list

VIA: Final = "mqtt"
TOPICS_KEPT: Final = 4_096
TOPIC_CHARACTERS_KEPT: Final = 256
"""Bounds of the cache of topics' sources, since publishers choose the topics."""
UNCONFIRMED: Final = "what is sent while the agent is not connected, and what is lost on the way to the broker, is lost"
REJECTED_MIN: Final = 3
"""Messages of a subscription that were all rejected, so that it is told."""

_log = logging.getLogger(__name__)


class Routes:
    """The subscriptions of the settings, and the names in Zigbee2MQTT's lists."""

    def __init__(self, settings: MqttSettings, names: ZigbeeNames) -> None:
        self._subscriptions = settings.subscriptions
        self._base = f"{settings.base_topic}/" if settings.base_topic else ""
        self._version = settings.version
        self._lists = {f"{self._base}{name}": name for name in (DEVICES, GROUPS)} if self._base else {}
        self._kept_source = lru_cache(maxsize=TOPICS_KEPT)(self._source)
        self.body_bytes_max = settings.max_body_bytes
        self.names = names
        self._passed_over = False
        self._rejected: dict[Subscription, int] = dict.fromkeys(settings.subscriptions, 0)
        """How many messages of a subscription were rejected, until one was accepted or the log has told it."""
        self._unconfirmed: set[Subscription] = set()
        """The subscriptions of which the log has told that messages come at QoS 0."""

    @property
    def devices_topic(self) -> str:
        return f"{self._base}{DEVICES}"

    @property
    def unknown_reason(self) -> str:
        """Why a message under an unknown name is no event."""
        if self.names.list_missing:
            return f"no device list has arrived ({self.devices_topic})"
        return "no device of this name in bridge/devices"

    def filters(self) -> Sequence[Filter]:
        """Return the topic filters to subscribe to.

        The lists are subscribed to at QoS 0: at QoS 1 they would queue behind the messages that wait for them, once
        those fill the receive window.
        """
        events = [subscription.filter for subscription in self._subscriptions]
        if self._base:
            events.append(f"{self._base}#")
        if self._version == "5":
            unretained = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
            return [
                *((topic, SubscribeOptions(qos=0)) for topic in self._lists),
                *((topic, unretained) for topic in events),
            ]
        return [*((topic, 0) for topic in self._lists), *((topic, 1) for topic in events)]

    def list_reader(self, message: Message) -> ListReader | None:
        """Return what reads a list of Zigbee2MQTT; None where the message is none."""
        name = self._lists.get(message.topic)
        if name is None or message.fault or not message.size:  # empty: a retained one is cleared
            return None
        if message.size > LIST_BYTES_MAX:
            if not self._passed_over:
                self._passed_over = True
                _log.warning("list=passed-over topic=%s bytes=%d", message.topic, message.size)
            return None
        return name, read_list(self.names, name, message.payload)

    def note(self, topic: str, reason: str, *, confirmed: bool) -> None:
        """Note that a subscribed message was accepted, or why it was not.

        Warn once of a subscription of which none was, and of one whose publisher sends at QoS 0.
        """
        if not self._rejected and (confirmed or len(self._unconfirmed) == len(self._subscriptions)):
            return
        subscription = next(one for one in self._subscriptions if one.matches(topic))
        if not confirmed and subscription not in self._unconfirmed:
            self._unconfirmed.add(subscription)
            _log.warning("mqtt=qos-0 topic=%r effect=%r", subscription.filter, UNCONFIRMED)
        count = self._rejected.pop(subscription, None)
        if not reason or count is None:
            return
        if count + 1 < REJECTED_MIN:
            self._rejected[subscription] = count + 1
        else:
            effect = "they are acknowledged, and kept by oncegate rejected only"
            _log.warning("mqtt=all-rejected topic=%r reason=%r effect=%r", subscription.filter, reason, effect)

    def malformed_delivery(self, message: Message) -> Delivery:
        """Return a delivery of a malformed packet, to be recorded as rejected."""
        return Delivery(message.payload, None, VIA, _bounded(f"mqtt:{message.topic}"))

    def subscribed_delivery(self, topic: str, payload: bytes) -> Delivery | None:
        """Return a delivery of a message that [[mqtt.subscriptions]] match; the topic may name the device."""
        source = self._kept_source(topic) if len(topic) <= TOPIC_CHARACTERS_KEPT else self._source(topic)
        return None if source is None else Delivery(payload, source[1], VIA, source[0])

    def _source(self, topic: str) -> tuple[str, Media | ForeignFormat] | None:
        """Return the device and the format of a topic's messages, None where no subscription matches it."""
        for subscription in self._subscriptions:
            if subscription.matches(topic):
                media = subscription.media
                assert not isinstance(media, str)  # the configuration has been read as a whole
                format_ = media if isinstance(media, Media) else ForeignFormat(media, topic.split("/"), {})
                return _bounded(subscription.device(topic) or f"mqtt:{topic}"), format_
        return None

    def may_be_event(self, topic: str, payload: bytes) -> bool:
        name = self.zigbee_name(topic)
        return self.subscribed_delivery(topic, payload) is not None or (
            name is not None and self.names.kind(name, payload) is not Kind.STATE
        )

    def zigbee_name(self, topic: str) -> str | None:
        """Return a topic's part below Zigbee2MQTT's base topic, None where it is not below it."""
        return topic[len(self._base) :] if self._base and topic.startswith(self._base) else None

    def zigbee_delivery(self, name: str, payload: bytes) -> tuple[Kind, Delivery]:
        """Return the kind of a message of Zigbee2MQTT, and a delivery of it."""
        kind = self.names.kind(name, payload)
        device = self.names.device(name)
        if kind is Kind.UNKNOWN and (device := _own_device(payload)) is not None:
            kind = Kind.DEVICE
        sender = device or _bounded(f"mqtt:{self._base}{name}")
        return kind, Delivery(payload, Media.ZIGBEE2MQTT, ZIGBEE2MQTT, sender)


def _bounded(sender: str) -> str:
    """Return a name, cut to one character beyond a device's limit: a longer one is refused, and recorded shortened.

    The topic replaces the sender's address, which is unknown behind a broker.
    """
    return sender[: DEVICE_CHARACTERS_MAX + 1]


def _own_device(payload: bytes) -> str | None:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return named_device(document) if isinstance(document, dict) else None
