"""Charts as inline SVG whose colours follow the page's theme (light or dark).

Matplotlib does not support CSS variables: each role is drawn in a placeholder colour, which is replaced afterwards.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

_STAND_INS = {
    "#010101": "--ink",
    "#020202": "--faint",
    "#030303": "--reported",
    "#040404": "--acked",
    "#050505": "--kafka",
    "#060606": "--table",
    "#070707": "--bad",
}
COLOURS = {variable.removeprefix("--"): colour for colour, variable in _STAND_INS.items()}
_INK, _FAINT = COLOURS["ink"], COLOURS["faint"]

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "oncegate",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.alpha": 0.5,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def canvas(height_inches: float) -> tuple[Figure, Axes]:
    """Return a figure of the page's width."""
    figure = Figure(figsize=(9.0, height_inches), layout="constrained")
    return figure, figure.add_subplot()


def finish(axes: Axes, unit: str, *, from_zero: bool = True) -> None:
    """Label a chart over time, with the legend below, where a small screen shows it, too."""
    axes.set_xlim(left=0)
    if from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the first event")
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=4)


def svg(figure: Figure, title: str) -> str:
    """Return the figure as SVG with the page's CSS variables as colours."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, variable in _STAND_INS.items():
        text = text.replace(stand_in, f"var({variable})")
    # Width and height follow the page; the view box keeps the proportions.
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"', rf'<svg \1role="img" aria-label="{title}"', text, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


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
        return svg(_draw(stations), "The flow from sensor to table")


def _draw(stations: Sequence[Station]) -> Figure:
    figure, axes = canvas(3.6)
    most = max(1, *(station.count for station in stations))
    heights = [_height(station.count, most) for station in stations]
    for place, (station, height) in enumerate(zip(stations, heights, strict=True)):
        axes.add_patch(Rectangle((place, -height), _NODE_WIDTH, height, color=COLOURS[station.colour], linewidth=0))
        axes.text(place + _NODE_WIDTH / 2, 0.16, f"{station.count:,}", ha="center", fontweight="bold")
        axes.text(place + _NODE_WIDTH / 2, 0.05, station.label, ha="center", fontsize=10)
        if place + 1 < len(stations):
            _bands(axes, place, station, heights[place : place + 2], most)
    axes.set_xlim(-0.4, len(stations) - 0.5)
    axes.set_ylim(-1 - (_FALL if any(station.branches for station in stations) else 0.05), 0.3)
    axes.set_axis_off()
    return figure


def _bands(axes: Axes, place: int, station: Station, heights: Sequence[float], most: int) -> None:
    left, right = place + _NODE_WIDTH, place + 1.0
    height, next_height = heights
    goes_on = min(height, next_height)
    axes.add_patch(_band(left, (0.0, -goes_on), right, (0.0, -next_height), COLOURS[station.colour]))
    thins = [_height(count, most) for _, count in station.branches]
    # Both edges from the bottom up, so that no branch crosses another.
    start, end = -goes_on - sum(thins), -1 - _FALL + 0.12
    for (label, count), thin in zip(reversed(station.branches), reversed(thins), strict=True):
        axes.add_patch(_band(left, (start + thin, start), place + 0.62, (end + thin, end), COLOURS["faint"]))
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
