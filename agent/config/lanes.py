"""The operator's lanes: [[forward.lanes]]."""

import re
from dataclasses import dataclass

from agent.config import readers
from agent.config.mistakes import SettingErrors, read_entries

LANES_MAX = 8
LANE_SHARE = 16
"""A lane beside the default one has this part of the store's bound, and as much memory for fingerprints in addition."""
DEFAULT_LANE = "default"
"""The lane of all events that no other lane takes."""
DEFAULT_PRIORITY = 0
_KEYS = frozenset({"name", "device", "type", "priority", "time_to_live", "gather"})
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_EXPECTED = "expected tables with name, priority, device or type (patterns), and optionally time_to_live and gather"


@dataclass(frozen=True, slots=True)
class Lane:
    """One entry of [[forward.lanes]]."""

    name: str
    priority: int
    """Lanes with a higher one are sent first; that of the default lane is 0."""
    device: str = "*"
    """A glob pattern on the device."""
    type: str = "*"
    """A glob pattern on the type."""
    time_to_live_seconds: float | None = None
    """How old an event may become before it is not sent any more, in running time of the agent; None: any age."""
    gather_seconds: float | None = None
    """How long a new event waits at most for others that are sent together with it; None: it does not."""


def is_name(text: str) -> bool:
    """Whether a lane beside the default one may have this name."""
    return _NAME.fullmatch(text) is not None and text != DEFAULT_LANE


def read_lanes(value: object) -> tuple[Lane, ...]:
    """Read the tables of [[forward.lanes]]; raise ValueError."""
    lanes = read_entries(value, _read, _EXPECTED)
    names = [lane.name for lane in lanes]
    if len(set(names)) < len(names):
        raise SettingErrors("expected a name of its own for each lane")
    if len(lanes) > LANES_MAX:
        raise SettingErrors(f"expected {LANES_MAX} lanes at most, beside the default lane")
    return lanes


def _read(table: object) -> Lane:
    if not isinstance(table, dict) or not {"name", "priority"} <= set(table) or not {"device", "type"} & set(table):
        raise ValueError(_EXPECTED)
    if unknown := set(table) - _KEYS:
        raise ValueError(f"{_EXPECTED}; not {min(unknown)!r}")
    name, priority = table["name"], table["priority"]
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(f"expected as name lower-case letters, digits and hyphens, 32 at most, and not {DEFAULT_LANE}")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError("expected as priority a whole number; the default lane has 0")
    patterns = {key: readers.pattern(table[key]) for key in ("device", "type") if key in table}
    lifetime = readers.entry(table, "time_to_live", readers.positive_duration) if "time_to_live" in table else None
    gather = readers.entry(table, "gather", readers.duration) if "gather" in table else None
    return Lane(name, priority, **patterns, time_to_live_seconds=lifetime, gather_seconds=gather)
