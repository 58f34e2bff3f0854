"""Checks that a broker has no real Zigbee network, whose list of devices the simulated one would replace."""

from __future__ import annotations

import json
from queue import Empty, SimpleQueue

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from simulators.errors import SimulatorError
from simulators.payloads import is_simulated
from simulators.sensors.zigbee_network import CONNECT_SECONDS_MAX, DEVICES_TOPIC

RETAINED_SECONDS_MAX = 2.0
"""How long a broker may take to deliver a retained message after it has accepted the subscription."""


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
