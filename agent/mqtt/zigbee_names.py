"""The devices behind Zigbee2MQTT's topics, known only from its lists of devices and groups.

A list is read entry by entry: one of some megabytes must not block the event loop.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from json import JSONDecoder
from typing import Final

from agent.decode.json import skip
from agent.decode.zigbee2mqtt import urn

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
        """Whether a message is a single attribute (Zigbee2MQTT: advanced.output), which the device's own repeats."""
        if payload.lstrip().startswith(b"{"):
            return False
        end = name.find("/")
        while 0 <= end <= NAME_CHARACTERS_MAX:
            if self.device(name[:end]) is not None:
                return True
            end = name.find("/", end + 1)
        return False


ENTRY_CHARACTERS_MAX = 1 << 17
"""Bound of a device or group: Zigbee2MQTT writes 5 to 20 kB. An entry is decoded in some 20 ms at most."""
_LOOK_AHEAD = (1 << 12, 1 << 15, ENTRY_CHARACTERS_MAX)
"""Characters to decode an entry from, tried in turn: copying the maximum for each `{}` would take hours."""
NAME_CHARACTERS_MAX = 1_024
"""Bound of a name that is kept: a topic may have 65,535 bytes, and a thousand topics may wait."""

_decode: Final = JSONDecoder().raw_decode


ListReader = tuple[str, Iterator[None]]
"""The name of a list, and its reading."""


def read_list(names: ZigbeeNames, topic: str, payload: bytes) -> Iterator[None]:
    """Read a list, an entry at each step, and learn it at its end; raise ValueError or RecursionError where it is none.

    The names are gathered entry by entry, too: a list of 4 MiB may hold 66,000.
    """
    addresses: dict[str, str | None] = {}
    for entry in read_entries(payload):
        name = entry.get("friendly_name")
        if isinstance(name, str) and len(name) <= NAME_CHARACTERS_MAX:
            addresses[name] = urn(entry.get("ieee_address"))
        yield
    names.update(topic, addresses)


def read_entries(payload: bytes) -> Iterator[dict[str, object]]:
    """Yield the objects of a JSON array; raise ValueError where it is none, or an entry is too long."""
    text = payload.decode()
    at = _after(text, 0, "[")
    if not text.startswith("]", at):
        while True:
            entry, at = _entry(text, at)
            yield entry
            if not text.startswith(",", at):
                break
            at = _after(text, at, ",")
    if _after(text, at, "]") != len(text):
        raise ValueError("something follows the list")


def _entry(text: str, at: int) -> tuple[dict[str, object], int]:
    """Return an object, and the position of the next character that is no space."""
    if not text.startswith("{", at):
        raise ValueError("an entry is no object")
    for size in _LOOK_AHEAD:
        try:
            entry, length = _decode(text[at : at + size])
        except ValueError:
            if at + size >= len(text):
                raise
        else:
            return entry, skip(text, at + length)
    raise ValueError(f"an entry has more than {ENTRY_CHARACTERS_MAX} characters")


def _after(text: str, at: int, sign: str) -> int:
    """Return the position after this character, which must be next, and after spaces; raise ValueError."""
    at = skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign} in its place")
    return skip(text, at + 1)
