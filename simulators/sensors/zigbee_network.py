"""A simulated Zigbee network: devices of real models, published by Zigbee2MQTT to an MQTT broker at QoS 1.

The retained list of devices stays on the broker after the run: an agent that was down needs it for the messages that
the broker has kept for it.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from contract.event import Event, Value
from simulators.errors import SimulatorError
from simulators.payloads import is_simulated
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field
from simulators.sensors.mqtt_network import CONNECT_SECONDS_MAX, MqttNetwork, address_of

BASE_TOPIC = "zigbee2mqtt"
DEVICES_TOPIC = f"{BASE_TOPIC}/bridge/devices"
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

    @property
    def topic(self) -> str:
        """The topic of its messages."""
        return f"{BASE_TOPIC}/{self.name}"

    def next_event(self, now: int, random: Random) -> tuple[Event, dict[str, Any]]:
        """Return the next event and the message that Zigbee2MQTT publishes for it."""
        self.time = max(self.time + 1, now)
        for name in _VARIES & self.published.keys():
            if isinstance(self.published[name], int | float):
                self.published[name] = round(self.published[name] + random.choice((-0.5, 0, 0, 0.5)), 2)
        data: dict[str, Value] = {name: value for name, value in self.published.items() if name not in NOT_DATA}
        message = {**data, "linkquality": random.randrange(256), "last_seen": self.time}
        return Event(f"urn:dev:mac:{self.address:016x}", time=self.time, data=data), message


class ZigbeeNetwork(MqttNetwork):
    """All devices of one network."""

    def __init__(self, field: Field, plan: FleetPlan, number: int) -> None:
        chosen = field.random(f"house {number}").sample(models(), k=min(plan.sensors, len(models())))
        devices = [
            ZigbeeDevice(
                f"{model['model']}-{place}".replace("/", "_"),
                address_of(field.run, number, place),
                dict(model["published"]),
            )
            for place, model in enumerate(chosen[place % len(chosen)] for place in range(plan.sensors))
        ]
        listed = [{"friendly_name": one.name, "ieee_address": f"0x{one.address:016x}"} for one in devices]
        super().__init__(field, plan, number, devices, {DEVICES_TOPIC: json.dumps(listed)})


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
