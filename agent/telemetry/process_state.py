"""The state that is in the agent's process only, for the views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.telemetry.links import Links, LinksOfLanes
from agent.telemetry.recent_errors import RecentErrors
from agent.telemetry.uplink import UplinkState


class CappedUplink(Protocol):
    """An uplink whose bytes are capped."""

    def state(self) -> UplinkState:
        """Return its use."""


@dataclass(frozen=True, slots=True)
class LaneState:
    """The state of one lane."""

    priority: int
    """Lanes with a higher one are sent first."""
    links: Links
    """Its own connections; the default lane has those that no other lane has, too."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The parts that report it."""

    recent_errors: RecentErrors
    links: LinksOfLanes
    uplink: CappedUplink | None
    """None where no cap is set."""
    lanes: Mapping[str, LaneState] = field(default_factory=dict)
    """Of each lane by its name; empty without lanes."""
