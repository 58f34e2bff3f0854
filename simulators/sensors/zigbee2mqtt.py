"""The real Zigbee2MQTT as a source of events.

Its reports are not known in advance, so an observer subscribes beside the agent and records what it receives: the
broker has accepted those messages, and each needs a row.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from contract.event import Event
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field
from simulators.sensors.mqtt_network import CONNECT_SECONDS_MAX
from simulators.sensors.zigbee_network import BASE_TOPIC, NOT_DATA


class Zigbee2MqttObserver:
    """Triggers the thermometers of a Zigbee2MQTT, and records their reports in the ledger."""

    def __init__(self, field: Field, plan: FleetPlan, number: int) -> None:
        self._field = field
        self._plan = plan
        self._number = number
        self._received = 0
        self._subscribed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe(f"{BASE_TOPIC}/+", 1)
        self._client.on_subscribe = lambda *_: self._in_loop(self._subscribed.set)
        self._client.on_message = lambda _client, _data, message: self._in_loop(self._receive, message)

    async def run(self) -> None:
        """Trigger reports until the run is over and all of them have been received."""
        source = self._field.targets.zigbee2mqtt
        assert source is not None
        self._client.connect_async(*source.broker)
        self._client.loop_start()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._subscribed.wait()
            moments = self._field.random(f"zigbee2mqtt {self._number}")
            async for _ in self._field.moments(moments, self._plan.every_seconds):
                due = self._received + self._plan.sensors
                source.report()
                while self._received < due:  # noqa: ASYNC110 (set by callbacks from the client's thread)
                    await asyncio.sleep(0.02)
        finally:
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    def _receive(self, message: MQTTMessage) -> None:
        name = message.topic.removeprefix(f"{BASE_TOPIC}/")
        source = self._field.targets.zigbee2mqtt
        device = None if source is None else source.devices.get(name)
        if device is None:
            return  # Zigbee2MQTT's own state
        payload: dict[str, Any] = json.loads(message.payload)
        data = {key: value for key, value in payload.items() if key not in NOT_DATA}
        mark = self._field.ledger.reported(Event(device, time=payload["last_seen"], data=data))
        self._field.ledger.sent(mark)
        self._field.ledger.acked(mark)
        self._received += 1

    def _in_loop(self, act: Any, *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)
