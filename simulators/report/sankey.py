"""A Sankey diagram of the flow from sensor to table."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from simulators.report.pictures import COLOURS, STYLE, canvas, svg

PAPER = {
    "ink": "#1d2430",
    "faint": "#b9c0ca",
    "reported": "#8a5a00",
    "acked": "#1f6fb2",
    "kafka": "#7b3fa0",
    "table": "#19803f",
}
"""The colours of the page's light theme, for a picture of its own."""
_TITLE_CHARACTERS = 90

_NODE_WIDTH = 0.1
_FALL = 0.55
"""Depth of the branches below the bands."""
_BRANCH_FALL = 0.16
"""From one branch to the one above, so that their labels do not touch."""
_BRANCH_GAP = 0.03
"""Between the ends of two branches, which would otherwise be seen as one."""
_NEVER = 0.004
"""Smallest width of a band, as a share of the whole, so that one event in a million is visible."""


@dataclass(frozen=True, slots=True)
class Station:
    """A station of the path, its count, and what becomes of events that do not reach the next one."""

    label: str
    count: int
    colour: str
    branches: tuple[tuple[str, int], ...] = ()


def branch(count: int, label: str) -> tuple[tuple[str, int], ...]:
    """Return a branch; none where nothing takes it."""
    return ((label, count),) if count > 0 else ()


def resends(transmissions: int, duplicates: int | None) -> tuple[tuple[str, int], ...]:
    """Return what became of the transmissions after an event's first: the gateway knew the event, or none arrived."""
    if duplicates is None or not 0 < duplicates <= transmissions:
        return branch(transmissions, "sent again")
    return (("duplicates, recognised", duplicates), *branch(transmissions - duplicates, "lost on the air"))


def sankey(stations: Sequence[Station]) -> str:
    """Draw the stations from left to right; a larger count at a later station (repeats) widens the band."""
    with mpl.rc_context(STYLE):
        return svg(_draw(stations, COLOURS), "The flow from sensor to table")


def listed(stations: Sequence[Station]) -> str:
    """Return the same as a list, for screens that are too narrow for the diagram."""
    return f'<ol class="stations">{"".join(_item(station) for station in stations)}</ol>'


def picture(stations: Sequence[Station], title: str) -> bytes:
    """Draw the same as PNG, under a title."""
    with mpl.rc_context({**STYLE, "text.color": PAPER["ink"]}):
        figure = _draw(stations, PAPER)
        figure.suptitle(textwrap.fill(title, _TITLE_CHARACTERS), fontsize=12)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=120, facecolor="white", metadata={"Software": None})
        return buffer.getvalue()


def _item(station: Station) -> str:
    branches = "".join(f"<li>{count:,} {escape(label)}</li>" for label, count in station.branches)
    inner = f"<ul>{branches}</ul>" if branches else ""
    text = f"<b>{station.count:,}</b> {escape(station.label)}{inner}"
    return f'<li style="border-color: var(--{station.colour})">{text}</li>'


def _draw(stations: Sequence[Station], colours: Mapping[str, str]) -> Figure:
    figure, axes = canvas(3.6)
    most = max(1, *(station.count for station in stations))
    heights = [_height(station.count, most) for station in stations]
    for place, (station, height) in enumerate(zip(stations, heights, strict=True)):
        axes.add_patch(Rectangle((place, -height), _NODE_WIDTH, height, color=colours[station.colour], linewidth=0))
        axes.text(place + _NODE_WIDTH / 2, 0.16, f"{station.count:,}", ha="center", fontweight="bold")
        axes.text(place + _NODE_WIDTH / 2, 0.05, station.label, ha="center", fontsize=10)
        if place + 1 < len(stations):
            _bands(axes, place, station, heights[place : place + 2], most, colours)
    axes.set_xlim(-0.4, len(stations) - 0.5)
    axes.set_ylim(-1 - (_FALL if any(station.branches for station in stations) else 0.05), 0.3)
    axes.set_axis_off()
    return figure


def _bands(
    axes: Axes, place: int, station: Station, heights: Sequence[float], most: int, colours: Mapping[str, str]
) -> None:
    left, right = place + _NODE_WIDTH, place + 1.0
    height, next_height = heights
    goes_on = min(height, next_height)
    axes.add_patch(_band(left, (0.0, -goes_on), right, (0.0, -next_height), colours[station.colour]))
    thins = [_height(count, most) for _, count in station.branches]
    # Both edges from the bottom up, so that no branch crosses another.
    start, end = -goes_on - sum(thins), -1 - _FALL + 0.12
    for (label, count), thin in zip(reversed(station.branches), reversed(thins), strict=True):
        axes.add_patch(_band(left, (start + thin, start), place + 0.62, (end + thin, end), colours["faint"]))
        axes.text(place + 0.66, end, f"{count:,} {label}", fontsize=9, va="bottom")
        start += thin
        end += max(thin + _BRANCH_GAP, _BRANCH_FALL)


def _band(
    left: float, at_left: tuple[float, float], right: float, at_right: tuple[float, float], colour: str
) -> PathPatch:
    """Return a band between two vertical edges, each with top and bottom."""
    middle = (left + right) / 2
    points = [
        (left, at_left[0]),
        *((middle, at_left[0]), (middle, at_right[0]), (right, at_right[0])),
        (right, at_right[1]),
        *((middle, at_right[1]), (middle, at_left[1]), (left, at_left[1])),
        (left, at_left[0]),
    ]
    curve = [Path.CURVE4] * 3
    codes = [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY]
    return PathPatch(Path(points, codes), facecolor=colour, alpha=0.35, linewidth=0)


def _height(count: int, most: int) -> float:
    return max(_NEVER, count / most) if count else 0.0
