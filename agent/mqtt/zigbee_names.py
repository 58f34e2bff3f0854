"""Who is behind a topic of Zigbee2MQTT: its own lists of devices and groups tell, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from agent.mqtt.device_list import NAME_CHARACTERS_MAX

BRIDGE = "bridge"
DEVICES, GROUPS = "bridge/devices", "bridge/groups"
LIST_BYTES_MAX = 4 << 20
"""Of a list: a device takes 5 to 20 kB of it, and a network has at most some hundred."""
STRANGERS_MAX = 1_000
"""Names remembered as unknown, so that their next messages need not wait."""
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
        self._devices: Mapping[str, str | None] = {}
        """The URN of each name; None where the list has an address that is none."""
        self._groups: Mapping[str, object] = {}
        self._strangers: set[str] = set()
        self.told = False
        """Whether the list of devices has come."""
        self.missing = False
        """Whether it was waited for in vain; until it comes, nothing waits for it any more."""

    def learn(self, topic: str, addresses: Mapping[str, str | None]) -> None:
        """Take a list: the URN of each name, as far as it says one."""
        if topic == DEVICES:
            self._devices = addresses
            self.told, self.missing = True, False
        else:
            self._groups = addresses
        self._strangers.clear()

    def give_up_list(self) -> None:
        """Wait for the list of devices no longer."""
        self.missing = True

    def give_up(self, name: str) -> None:
        """Remember that a name was waited for in vain, until the next list."""
        if len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(name)

    def may_come(self, name: str) -> bool:
        """Whether a list yet to come may name an unknown device."""
        return not self.missing and len(name) <= NAME_CHARACTERS_MAX and name not in self._strangers

    def device(self, name: str) -> str | None:
        """Return the URN of a device by its name."""
        return self._devices.get(name)

    def kind(self, name: str, payload: bytes) -> Kind:
        """Return what a message is; `name` is its topic below the base topic."""
        if name == BRIDGE or name.startswith(f"{BRIDGE}/") or not payload:  # no payload: a retained one is cleared
            return Kind.STATE
        if self.device(name) is not None:
            return Kind.DEVICE
        if not (self.told or self.missing):
            return Kind.UNKNOWN
        if name in self._groups or name.endswith(_AVAILABILITY) or set(name.split("/")[1:]) & set(_COMMANDS):
            return Kind.STATE
        return Kind.STATE if self._is_attribute(name, payload) else Kind.UNKNOWN

    def _is_attribute(self, name: str, payload: bytes) -> bool:
        """Whether it is a single attribute (Zigbee2MQTT: advanced.output), which its device's own message repeats."""
        if payload.lstrip().startswith(b"{"):
            return False
        end = name.find("/")
        while 0 <= end <= NAME_CHARACTERS_MAX:
            if self.device(name[:end]) is not None:
                return True
            end = name.find("/", end + 1)
        return False
