"""A publisher that does not use the agent's code: paho's client, with a thread of its own."""

import threading
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.waiting import wait_until

SECONDS_MAX = 60.0


class Publisher:
    def __init__(self, port: int) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.max_inflight_messages_set(0)
        self._port = port
        self._subscribed = threading.Event()
        self.received: list[tuple[str, bytes]] = []

    def __enter__(self) -> Self:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        wait_until(self._client.is_connected, "the publisher is connected")
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes | str, qos: int = 1, *, retain: bool = False) -> None:
        """Publish; return once the broker has the message."""
        self._client.publish(topic, payload, qos, retain).wait_for_publish(SECONDS_MAX)

    def publish_all(self, messages: list[tuple[str, bytes]]) -> None:
        """Publish many at QoS 1; return once the broker has all of them."""
        sent = [self._client.publish(topic, payload, 1) for topic, payload in messages]
        for message in sent:
            message.wait_for_publish(SECONDS_MAX)

    def listen(self, topic: str) -> None:
        """Subscribe to a topic; retained messages are received, too."""
        self._client.subscribe(topic, 1)
        assert self._subscribed.wait(SECONDS_MAX)

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self.received.append((message.topic, bytes(message.payload)))

    def _on_subscribe(self, client: Client, data: Any, message_id: int, reasons: Any, properties: Any) -> None:
        self._subscribed.set()
