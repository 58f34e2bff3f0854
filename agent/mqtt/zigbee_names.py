"""Who is behind a topic of Zigbee2MQTT: its own lists of devices and groups tell, and nothing else does."""

from __future__ import annotations

import json
from enum import Enum

from agent.decode.zigbee2mqtt import urn

BRIDGE = "bridge"
DEVICES, GROUPS = "bridge/devices", "bridge/groups"
LIST_BYTES_MAX = 4 << 20
"""Of a list: a device takes 5 to 20 kB of it, and a network has at most some hundred."""
_COMMANDS = ("set", "get")
_AVAILABILITY = "/availability"


class Kind(Enum):
    """What a message below the base topic is."""

    DEVICE = "device"
    STATE = "state"
    """Of the bridge, a group, an availability, a command, a single attribute: no event of a device."""
    UNKNOWN = "unknown"
    """Perhaps of a device that a list yet to come will name."""


class ZigbeeNames:
    """The names of devices and groups, as Zigbee2MQTT has told them last; names may hold slashes."""

    def __init__(self) -> None:
        self._devices: dict[str, str] = {}
        self._groups: frozenset[str] = frozenset()
        self.told = False
        """Whether the list of devices has come."""

    def learn(self, topic: str, payload: bytes) -> bool:
        """Take a list; False where it is none."""
        entries = _entries(payload)
        if entries is None:
            return False
        named = [(name, entry) for entry in entries if isinstance(name := entry.get("friendly_name"), str)]
        if topic == DEVICES:
            devices = ((name, urn(entry.get("ieee_address"))) for name, entry in named)
            self._devices = {name: device for name, device in devices if device is not None}
            self.told = True
        else:
            self._groups = frozenset(name for name, _ in named)
        return True

    def device(self, name: str) -> str | None:
        """Give the URN of a device by its name."""
        return self._devices.get(name)

    def kind(self, name: str, payload: bytes) -> Kind:
        """Tell what a message is; `name` is its topic below the base topic."""
        if name == BRIDGE or name.startswith(f"{BRIDGE}/") or not payload:  # no payload: a retained one is cleared
            return Kind.STATE
        if name in self._devices:
            return Kind.DEVICE
        if not self.told:
            return Kind.UNKNOWN
        if name in self._groups or name.endswith(_AVAILABILITY) or set(name.split("/")[1:]) & set(_COMMANDS):
            return Kind.STATE
        return Kind.STATE if self._is_attribute(name, payload) else Kind.UNKNOWN

    def _is_attribute(self, name: str, payload: bytes) -> bool:
        """Tell a single attribute (Zigbee2MQTT: advanced.output), which its device's own message repeats."""
        if payload.lstrip().startswith(b"{"):
            return False
        return any(name.startswith(f"{device}/") for device in self._devices)


def _entries(payload: bytes) -> list[dict[str, object]] | None:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        return None
    return document
