"""A simulated Zigbee network: devices of real models, published by Zigbee2MQTT to an MQTT broker at QoS 1.

The broker's PUBACK counts as the ACK (docs/zigbee2mqtt.md). The retained list of devices stays on the broker after the
run: an agent that was down needs it for the messages that the broker has kept for it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from contract.event import Event, Value
from simulators.errors import SimulatorError
from simulators.payloads import SENSORS_MAX, address, is_simulated
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field

BASE_TOPIC = "zigbee2mqtt"
DEVICES_TOPIC = f"{BASE_TOPIC}/bridge/devices"
CONNECT_SECONDS_MAX = 30.0
PLACES_MAX = 1 << 11
"""Largest number of devices in one network."""
NOT_DATA = frozenset({"linkquality", "last_seen", "update", "update_available", "device"})
"""Fields about the radio and about Zigbee2MQTT itself."""
_VARIES = frozenset({"temperature", "humidity", "power", "illuminance", "local_temperature"})
RETAINED_SECONDS_MAX = 2.0
"""How long a broker may take to deliver a retained message after it has accepted the subscription."""


@cache
def models() -> list[dict[str, Any]]:
    """Return what Zigbee2MQTT's converters publish for device models of many manufacturers."""
    publications: list[dict[str, Any]] = json.loads(Path(__file__).with_name("zigbee-models.json").read_text())[
        "publications"
    ]
    return publications


@dataclass(slots=True)
class ZigbeeDevice:
    """A device of a real model, with its friendly name."""

    name: str
    address: int
    published: dict[str, Any]
    time: int = 0

    def next_event(self, now: int, random: Random) -> tuple[Event, dict[str, Any]]:
        """Return the next event and the message that Zigbee2MQTT publishes for it."""
        self.time = max(self.time + 1, now)
        for name in _VARIES & self.published.keys():
            if isinstance(self.published[name], int | float):
                self.published[name] = round(self.published[name] + random.choice((-0.5, 0, 0, 0.5)), 2)
        data: dict[str, Value] = {name: value for name, value in self.published.items() if name not in NOT_DATA}
        message = {**data, "linkquality": random.randrange(256), "last_seen": self.time}
        return Event(f"urn:dev:mac:{self.address:016x}", time=self.time, data=data), message


class ZigbeeNetwork:
    """All devices of one network, behind one connection to the broker."""

    def __init__(self, field: Field, plan: FleetPlan, number: int) -> None:
        chosen = field.random(f"house {number}").sample(models(), k=min(plan.sensors, len(models())))
        self._devices = [
            ZigbeeDevice(
                f"{model['model']}-{place}".replace("/", "_"),
                _address(field.run, number, place),
                dict(model["published"]),
            )
            for place, model in enumerate(chosen[place % len(chosen)] for place in range(plan.sensors))
        ]
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
            self._client.publish(DEVICES_TOPIC, json.dumps(self._list()), 1, retain=True)
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
            self._field.ledger.sent(mark)
            sent = self._client.publish(f"{BASE_TOPIC}/{device.name}", json.dumps(message), 1)
            # The PUBACK arrives as a callback in this loop, so never before this line.
            self._waiting[sent.mid] = mark

    def _list(self) -> list[dict[str, str]]:
        return [{"friendly_name": one.name, "ieee_address": f"0x{one.address:016x}"} for one in self._devices]

    def _on_publish(self, client: Client, data: Any, message_id: int, reason: ReasonCode, properties: Any) -> None:
        self._in_loop(self._acked, message_id)

    def _acked(self, message_id: int) -> None:
        mark = self._waiting.pop(message_id, None)
        if mark is not None:
            self._field.ledger.acked(mark)

    def _in_loop(self, act: Any, *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)


def _address(run: int, network: int, place: int) -> int:
    return address(SENSORS_MAX + network * PLACES_MAX + place, run)


class ZigbeeBrokerError(SimulatorError):
    """The broker has a real network, or could not be asked."""


def require_no_network(broker: tuple[str, int]) -> None:
    """Raise ZigbeeBrokerError unless the broker has no list of devices, or one of an earlier run."""
    place = f"{DEVICES_TOPIC} at mqtt://{broker[0]}:{broker[1]}"
    try:
        devices = _retained(*broker)
    except (OSError, Empty) as error:
        raise ZigbeeBrokerError(f"{place} cannot be read: {str(error) or 'no answer'}") from error
    if devices and not _are_simulated(devices):
        raise ZigbeeBrokerError(
            f"{place} lists the devices of a Zigbee2MQTT, and this scenario would replace the list: the agent would "
            "reject the events of these devices. Use a broker of its own for the test"
        )


def _retained(host: str, port: int) -> bytes:
    """Return the retained list of devices, empty where there is none; raise Empty without an answer."""
    reasons: SimpleQueue[str] = SimpleQueue()
    lists: SimpleQueue[bytes] = SimpleQueue()
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda client, *_: client.subscribe(DEVICES_TOPIC, 1)
    client.on_subscribe = lambda _client, _data, _id, answers, _properties: reasons.put(
        str(answers[0]) if answers[0].is_failure else ""
    )
    client.on_message = lambda _client, _data, message: lists.put(bytes(message.payload))
    client.connect(host, port)
    client.loop_start()
    try:
        if refused := reasons.get(timeout=CONNECT_SECONDS_MAX):
            raise PermissionError(refused)
        try:
            return lists.get(timeout=RETAINED_SECONDS_MAX)
        except Empty:
            return b""
    finally:
        client.disconnect()
        client.loop_stop()


def _are_simulated(devices: bytes) -> bool:
    """Whether all devices of a list are simulated ones."""
    try:
        return all(is_simulated(int(device["ieee_address"], 16)) for device in json.loads(devices))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
