"""The state that is in the agent's process only, for the views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.telemetry.links import LinksOfLanes
from agent.telemetry.recent_errors import RecentErrors
from agent.telemetry.uplink import UplinkState


class CappedUplink(Protocol):
    """An uplink whose bytes are capped."""

    def state(self) -> UplinkState:
        """Return its use."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The parts that report it."""

    recent_errors: RecentErrors
    links: LinksOfLanes
    uplink: CappedUplink | None
    """None where no cap is set."""
