"""The devices behind Zigbee2MQTT's topics, known only from its lists of devices and groups."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from agent.mqtt.device_list import NAME_CHARACTERS_MAX

BRIDGE: Final = "bridge"
DEVICES: Final = "bridge/devices"
GROUPS: Final = "bridge/groups"
LIST_BYTES_MAX: Final = 4 << 20
"""Bound of a list: a device takes 5 to 20 kB, and a network has some hundred at most."""
UNKNOWN_NAMES_MAX: Final = 1_000
"""Names remembered as unknown, so that their next messages need not wait."""
_COMMANDS: Final[tuple[str, ...]] = ("set", "get")
_AVAILABILITY: Final = "/availability"


class Kind(Enum):
    """The kinds of messages below the base topic."""

    DEVICE = "device"
    STATE = "state"
    """Of the bridge or a group, an availability, a command, a single attribute: no event of a device."""
    UNKNOWN = "unknown"
    """Possibly of a device that a later list will name."""


class ZigbeeNames:
    """The names of devices and groups in Zigbee2MQTT's latest lists; names may contain slashes."""

    def __init__(self) -> None:
        self._devices: Mapping[str, str | None] = {}
        """The URN of each name; None where the list has an invalid address."""
        self._groups: Mapping[str, object] = {}
        self._unknown: set[str] = set()
        self.has_list = False
        """Whether a list of devices was received."""
        self.list_missing = False
        """Whether the wait for the list has timed out; until it is received, messages no longer wait for it."""

    def update(self, topic: str, addresses: Mapping[str, str | None]) -> None:
        """Replace a list: the URN of each name, None where its address is invalid."""
        if topic == DEVICES:
            self._devices = addresses
            self.has_list, self.list_missing = True, False
        else:
            self._groups = addresses
        self._unknown.clear()

    def mark_list_missing(self) -> None:
        """Stop waiting for the list of devices."""
        self.list_missing = True

    def mark_unknown(self, name: str) -> None:
        """Remember until the next list that the wait for a name has timed out."""
        if len(self._unknown) < UNKNOWN_NAMES_MAX:
            self._unknown.add(name)

    def may_be_listed(self, name: str) -> bool:
        """Whether to wait for a list that names an unknown device."""
        return not self.list_missing and len(name) <= NAME_CHARACTERS_MAX and name not in self._unknown

    def device(self, name: str) -> str | None:
        """Return the URN of a device by its name, None where it is unknown."""
        return self._devices.get(name)

    def kind(self, name: str, payload: bytes) -> Kind:
        """Return the kind of a message; `name` is its topic below the base topic."""
        if name == BRIDGE or name.startswith(f"{BRIDGE}/") or not payload:  # no payload: a retained one is cleared
            return Kind.STATE
        if self.device(name) is not None:
            return Kind.DEVICE
        if not (self.has_list or self.list_missing):
            return Kind.UNKNOWN
        if name in self._groups or name.endswith(_AVAILABILITY) or set(name.split("/")[1:]) & set(_COMMANDS):
            return Kind.STATE
        return Kind.STATE if self._is_attribute(name, payload) else Kind.UNKNOWN

    def _is_attribute(self, name: str, payload: bytes) -> bool:
        """Whether it is a single attribute (Zigbee2MQTT: advanced.output), which the device's message repeats."""
        if payload.lstrip().startswith(b"{"):
            return False
        end = name.find("/")
        while 0 <= end <= NAME_CHARACTERS_MAX:
            if self.device(name[:end]) is not None:
                return True
            end = name.find("/", end + 1)
        return False
