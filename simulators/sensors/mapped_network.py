"""Devices of other products: LoRaWAN uplinks of two servers, and a Ruuvi gateway, each in its own format.

A quarter of the messages is published twice, as by a server whose uplink two radio gateways have heard.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from contract.event import Event
from contract.timestamp import rfc3339
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field
from simulators.sensors.mqtt_network import MqttNetwork, address_of

PRODUCTS = {
    "chirpstack-v4": "application/+/device/+/event/up",
    "the-things-stack-v3": "v3/+/devices/+/up",
    "ruuvi-gateway": "ruuvi/+/+",
}
"""The mappings, with the topics of their messages."""
REPEATED = 0.25
_GATEWAY = "0016c001f153a14c"


@dataclass(slots=True)
class MappedDevice:
    """A device behind a product of `PRODUCTS`."""

    product: str
    address: int
    time: int = 0
    number: int = 0

    @property
    def topic(self) -> str:
        """The topic of its messages."""
        eui = f"{self.address:016X}"
        mac = ":".join(eui[at : at + 2] for at in range(0, 16, 2))
        place = {"chirpstack-v4": f"17c8/device/{eui}", "the-things-stack-v3": f"app@site/devices/eui-{eui.lower()}"}
        levels = PRODUCTS[self.product].split("+")
        return f"{levels[0]}{place.get(self.product, f'{_GATEWAY}/{mac}')}{levels[-1]}"

    def next_event(self, now: int, random: Random) -> tuple[Event, dict[str, Any]]:
        """Return the next event and the message of its product."""
        self.time = max(self.time + 1, now)
        self.number += 1
        return _MESSAGES[self.product](self, random)


class MappedNetwork(MqttNetwork):
    """Devices behind all products in turns."""

    def __init__(self, field: Field, plan: FleetPlan, number: int) -> None:
        names = list(PRODUCTS)
        devices = [
            MappedDevice(names[place % len(names)], address_of(field.run, number, place))
            for place in range(plan.sensors)
        ]
        super().__init__(field, plan, number, devices, {}, REPEATED)


def _chirpstack(device: MappedDevice, random: Random) -> tuple[Event, dict[str, Any]]:
    uplink, data = str(UUID(int=random.getrandbits(128))), {"temperature": random.randrange(36, 48) / 2}
    message = {
        "deduplicationId": uplink,
        "time": rfc3339(device.time),
        "deviceInfo": {"devEui": f"{device.address:016X}"},
        "fCnt": device.number,
        "object": data,
        "rxInfo": [{"gatewayId": _GATEWAY, "rssi": random.randrange(-120, -30), "snr": 10.5}],
    }
    return Event(_urn(device), id=uplink, time=device.time, data=data), message


def _the_things_stack(device: MappedDevice, random: Random) -> tuple[Event, dict[str, Any]]:
    session, data = f"{device.address:x}/", {"temperature": random.randrange(36, 48) / 2}
    uplink = {"session_key_id": session, "f_cnt": device.number, "received_at": rfc3339(device.time)}
    message = {
        "end_device_ids": {"device_id": "one", "dev_eui": f"{device.address:016X}"},
        "uplink_message": {**uplink, "decoded_payload": data, "rx_metadata": [{"rssi": random.randrange(-120, -30)}]},
    }
    return Event(_urn(device), id=f"{session}/{device.number}", time=device.time, data=data), message


def _ruuvi(device: MappedDevice, random: Random) -> tuple[Event, dict[str, Any]]:
    seconds, advertisement = device.time // 1000, f"0201061BFF9904{random.getrandbits(64):016X}{device.number:04X}"
    message = {"gw_mac": _GATEWAY, "rssi": random.randrange(-120, -30), "ts": str(seconds), "data": advertisement}
    return Event(_urn(device), time=seconds * 1000, data={"data": advertisement}), message


_MESSAGES: dict[str, Callable[[MappedDevice, Random], tuple[Event, dict[str, Any]]]] = {
    "chirpstack-v4": _chirpstack,
    "the-things-stack-v3": _the_things_stack,
    "ruuvi-gateway": _ruuvi,
}


def _urn(device: MappedDevice) -> str:
    return f"urn:dev:mac:{device.address:016x}"
