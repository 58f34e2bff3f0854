"""A Sankey diagram of the flow from sensor to table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from simulators.report.pictures import COLOURS, STYLE, canvas, svg

_NODE_WIDTH = 0.1
_FALL = 0.55
"""Depth of the branches below the bands."""
_NEVER = 0.004
"""Smallest width of a band, as a share of the whole, so that one event in a million is visible."""


@dataclass(frozen=True, slots=True)
class Station:
    """A station of the path, its count, and the label of events that do not reach the next one."""

    label: str
    count: int
    colour: str
    leave_as: str = ""


def sankey(stations: Sequence[Station]) -> str:
    """Draw the stations from left to right; a larger count at a later station (repeats) widens the band."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.4)
        most = max(1, *(station.count for station in stations))
        heights = [_height(station.count, most) for station in stations]
        for place, (station, height) in enumerate(zip(stations, heights, strict=True)):
            axes.add_patch(Rectangle((place, -height), _NODE_WIDTH, height, color=COLOURS[station.colour], linewidth=0))
            axes.text(place + _NODE_WIDTH / 2, 0.16, f"{station.count:,}", ha="center", fontweight="bold")
            axes.text(place + _NODE_WIDTH / 2, 0.05, station.label, ha="center", fontsize=10)
            if place + 1 < len(stations):
                _bands(axes, place, station, stations[place + 1].count, heights[place : place + 2], most)
        axes.set_xlim(-0.4, len(stations) - 0.5)
        axes.set_ylim(-1 - _FALL, 0.3)
        axes.set_axis_off()
        return svg(figure, "The flow from sensor to table")


def _bands(axes: Axes, place: int, station: Station, following: int, heights: Sequence[float], most: int) -> None:
    left, right = place + _NODE_WIDTH, place + 1.0
    height, next_height = heights
    goes_on = min(height, next_height)
    axes.add_patch(_band(left, (0.0, -goes_on), right, (0.0, -next_height), COLOURS[station.colour]))
    left_behind = station.count - following
    if left_behind <= 0 or not station.leave_as:
        return
    thin = _height(left_behind, most)
    bottom = -1 - _FALL + 0.12
    axes.add_patch(_band(left, (-(height - thin), -height), place + 0.62, (bottom + thin, bottom), COLOURS["faint"]))
    axes.text(place + 0.66, bottom, f"{left_behind:,} {station.leave_as}", fontsize=9, va="bottom")


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
