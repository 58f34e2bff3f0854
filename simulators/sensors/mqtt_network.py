"""Simulated devices that publish to an MQTT broker at QoS 1, whose PUBACK counts as the ACK (docs/zigbee2mqtt.md)."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from contract.event import Event
from simulators.payloads import SENSORS_MAX, address
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field

CONNECT_SECONDS_MAX = 30.0
PLACES_MAX = 1 << 11
"""Largest number of devices in one network."""


class MqttDevice(Protocol):
    """A device whose events are published one by one."""

    @property
    def topic(self) -> str:
        """The topic of its messages."""

    def next_event(self, now: int, random: Random) -> tuple[Event, dict[str, Any]]:
        """Return the next event and the message about it; `now` is in milliseconds since 1970 UTC."""


class MqttNetwork:
    """All devices of one network, behind one connection to the broker."""

    def __init__(
        self,
        field: Field,
        plan: FleetPlan,
        number: int,
        devices: Sequence[MqttDevice],
        retained: Mapping[str, str],
        repeated: float = 0.0,
    ) -> None:
        """Create them; `retained` are messages by topic, `repeated` is the share of messages published twice."""
        self._devices = devices
        self._retained = retained
        self._repeated = repeated
        self._field = field
        self._plan = plan
        self._number = number
        self._waiting: dict[int, int] = {}
        self._connected = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(0)
        self._client.on_connect = lambda *_: self._in_loop(self._connected.set)
        self._client.on_publish = self._on_publish

    async def run(self) -> None:
        """Publish until the run is over and the broker has everything."""
        assert self._field.targets.mqtt is not None
        self._client.connect_async(*self._field.targets.mqtt)
        self._client.loop_start()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._connected.wait()
            for topic, text in self._retained.items():
                self._client.publish(topic, text, 1, retain=True)
            async with asyncio.TaskGroup() as tasks:
                for place in range(len(self._devices)):
                    tasks.create_task(self._publish_of(place))
            while self._waiting:  # noqa: ASYNC110 (set by callbacks from the client's thread)
                await asyncio.sleep(0.05)
        finally:
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    async def _publish_of(self, place: int) -> None:
        device = self._devices[place]
        schedule = self._field.random(f"house {self._number} device {place}")
        async for moment in self._field.moments(schedule, self._plan.every_seconds):
            event, message = device.next_event(self._field.time_of(moment, self._plan.clock_offset_seconds), schedule)
            mark = self._field.ledger.reported(event)
            for _ in range(2 if schedule.random() < self._repeated else 1):
                self._field.ledger.sent(mark)
                sent = self._client.publish(device.topic, json.dumps(message), 1)
            # The PUBACK arrives as a callback in this loop, so never before this line.
            self._waiting[sent.mid] = mark

    def _on_publish(self, client: Client, data: Any, message_id: int, reason: ReasonCode, properties: Any) -> None:
        self._in_loop(self._acked, message_id)

    def _acked(self, message_id: int) -> None:
        mark = self._waiting.pop(message_id, None)
        if mark is not None:
            self._field.ledger.acked(mark)

    def _in_loop(self, act: Any, *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)


def address_of(run: int, network: int, place: int) -> int:
    """Return the address of a device, which no other device of any run has."""
    return address(SENSORS_MAX + network * PLACES_MAX + place, run)
