"""The ways in: one description for each, from which all else that differs between them is derived.

An entry point of the group `oncegate.sources` names each. Those of the agent itself have a section of their own; that
of another package is `[sources.NAME]`, and only where the configuration has it, the package is looked up.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agent.config.settings import Settings

GROUP: Final = "oncegate.sources"
SECTION: Final = "sources."
"""Precedes the name of another package's way in in the name of its section."""


class Via(StrEnum):
    """The protocols of the agent's own ways in, as records, metrics and the log name them."""

    COAP = "coap"
    ZIGBEE2MQTT = "zigbee2mqtt"
    MQTT = "mqtt"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class WayIn:
    """A way in. Its functions are named `module:function`: what they import costs time and memory where it is used."""

    name: str
    """The name of its entry point, of its section, and of its link where it reports one."""
    opens: str
    """An `agent.opening.Open`."""
    settings: type[Any] | None = None
    """A frozen dataclass of `agent.config.settings.option`; None for the agent's own, which are there."""
    doctor: str = ""
    """Yields findings, given all settings and the time in milliseconds since 1970 UTC; empty where there is none."""
    vias: tuple[str, ...] = ()
    """The protocols of its deliveries; empty where that is its name."""
    memory_bytes: int = 48 << 20
    """The bound of the memory of each protocol's deliveries in progress."""
    records_refused: bool = False
    """Whether its senders cannot be told: what would be refused is recorded as rejected."""
    listens: socket.SocketKind | None = None
    """The kind of the socket at its `bind`; None where it does not listen."""


COAP: Final = WayIn("coap", "agent.opening:open_coap", listens=socket.SOCK_DGRAM)
HTTP: Final = WayIn("http", "agent.opening:open_http", memory_bytes=24 << 20, listens=socket.SOCK_STREAM)
MQTT: Final = WayIn(
    "mqtt",
    "agent.opening:open_mqtt",
    doctor="agent.cli.doctor.mqtt:check",
    vias=(Via.ZIGBEE2MQTT, Via.MQTT),
    # It has a far lower bound of its own (`agent.mqtt.reception`): at this one it would have to disconnect.
    records_refused=True,
)
OWN: Final = {way.name: way for way in (COAP, MQTT, HTTP)}
"""The agent's own, in the order in which they are opened and shown."""
_TAKEN: Final = frozenset((*OWN, *Via, "gateway", "kafka", "receipts"))
"""Names of other protocols and connections, which records, metrics and views could not tell from another package's."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")
"""In records a protocol is not escaped."""


def find(name: str) -> WayIn:
    """Return another package's way in; raise ValueError where it is missing or invalid."""
    found = entry_points(group=GROUP)
    others = sorted(found.names - OWN.keys())
    if name not in others:
        raise ValueError(f"no such way in is installed; there are: {', '.join(others) or 'none'}")
    try:
        way = found[name].load()
    except Exception as error:  # of another package's code
        raise ValueError(f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(way, WayIn) or way.settings is None or way.name != name:
        raise ValueError(f"{found[name].value} is no agent.config.ways.WayIn of this name with settings")
    for word in (name, *way.vias):
        if word in _TAKEN or not _NAME.fullmatch(word):
            raise ValueError(f"expected another name than {word!r}: of a-z, 0-9, _ . -, and none of the agent's")
    return way


def enabled(settings: Settings) -> dict[str, WayIn]:
    """Return the enabled ways in; another package's are enabled by their section."""
    own = {name: way for name, way in OWN.items() if getattr(settings, name).enabled}
    return own | {name: find(name) for name in settings.sources}


def limits(ways: Mapping[str, WayIn] = OWN) -> dict[str, WayIn]:
    """Return the way in of each protocol, whose bounds apply to it."""
    return {via: way for way in ways.values() for via in way.vias or (way.name,)}


def protocols() -> list[str]:
    """Return the protocols of all ways in that are installed; of a package that cannot be used, its name."""
    return [*map(str, limits()), *chain.from_iterable(map(_vias, sorted(entry_points(group=GROUP).names - OWN.keys())))]


def _vias(name: str) -> tuple[str, ...]:
    try:
        return find(name).vias or (name,)
    except ValueError:
        return (name,)
