"""From a topic to a delivery: what is subscribed to, and what its messages are."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from paho.mqtt.subscribeoptions import SubscribeOptions

from agent.config.settings import MqttSettings
from agent.decode.event_map import DEVICE_CHARACTERS_MAX
from agent.decode.zigbee2mqtt import named_device
from agent.delivery import Delivery, Media
from agent.identity.identify import ZIGBEE2MQTT
from agent.mqtt.connection import Filter
from agent.mqtt.device_list import Reading
from agent.mqtt.packets import Message
from agent.mqtt.zigbee_names import DEVICES, GROUPS, LIST_BYTES_MAX, Kind, ZigbeeNames

VIA = "mqtt"

_log = logging.getLogger(__name__)


class Routes:
    """The subscriptions of the settings, and the names that Zigbee2MQTT has told."""

    def __init__(self, settings: MqttSettings, names: ZigbeeNames) -> None:
        self._subscriptions = settings.subscriptions
        self._base = f"{settings.base_topic}/" if settings.base_topic else ""
        self._version = settings.version
        self._lists = {f"{self._base}{name}": name for name in (DEVICES, GROUPS)} if self._base else {}
        self.body_bytes_max = settings.max_body_bytes
        self.names = names
        self._passed_over = False

    @property
    def devices_topic(self) -> str:
        """Where Zigbee2MQTT keeps its list of devices."""
        return f"{self._base}{DEVICES}"

    @property
    def why_unknown(self) -> str:
        """Why a message of an unknown name is no event."""
        if self.names.missing:
            return f"no list of devices has come ({self.devices_topic})"
        return "no device of this name in bridge/devices"

    def filters(self) -> Sequence[Filter]:
        """Return what to subscribe to.

        The lists come at QoS 0: they must not queue behind the very messages that wait for them, in a window that
        those have filled.
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

    def reading(self, message: Message) -> Reading | None:
        """Begin to read a list of Zigbee2MQTT; None where the message is none."""
        name = self._lists.get(message.topic)
        if name is None or message.fault or not message.size:  # empty: a retained one is cleared
            return None
        if message.size > LIST_BYTES_MAX:
            if not self._passed_over:
                self._passed_over = True
                _log.warning("mqtt: list=passed-over topic=%s bytes=%d", message.topic, message.size)
            return None
        return Reading(self.names.learn, name, message.payload)

    def stray(self, message: Message) -> Delivery:
        """Make a delivery of a packet that is no message, for the record."""
        return Delivery(message.payload, None, VIA, _bounded(f"mqtt:{message.topic}"))

    def own(self, topic: str, payload: bytes) -> Delivery | None:
        """Make a delivery of what [[mqtt.subscriptions]] means; the topic may name the device."""
        for subscription in self._subscriptions:
            if subscription.matches(topic):
                device = _bounded(subscription.device(topic) or f"mqtt:{topic}")
                return Delivery(payload, subscription.media, VIA, device)
        return None

    def may_be_event(self, topic: str, payload: bytes) -> bool:
        """Whether a message would be lost with its loss."""
        name = self.zigbee_name(topic)
        return self.own(topic, payload) is not None or (
            name is not None and self.names.kind(name, payload) is not Kind.STATE
        )

    def zigbee_name(self, topic: str) -> str | None:
        """Return what stands below Zigbee2MQTT's base topic."""
        return topic[len(self._base) :] if self._base and topic.startswith(self._base) else None

    def zigbee(self, name: str, payload: bytes) -> tuple[Kind, Delivery]:
        """Return what a message of Zigbee2MQTT is, and a delivery of it."""
        kind = self.names.kind(name, payload)
        device = self.names.device(name)
        if kind is Kind.UNKNOWN and (device := _said(payload)) is not None:
            kind = Kind.DEVICE
        sender = device or _bounded(f"mqtt:{self._base}{name}")
        return kind, Delivery(payload, Media.ZIGBEE2MQTT, ZIGBEE2MQTT, sender)


def _bounded(sender: str) -> str:
    """Cut a name that is too long for a device, to one that still is: it is refused, and what is kept of it is short.

    The topic is the sender's address, since behind a broker no one has another.
    """
    return sender[: DEVICE_CHARACTERS_MAX + 1]


def _said(payload: bytes) -> str | None:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return named_device(document) if isinstance(document, dict) else None
