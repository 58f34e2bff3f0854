"""Charts as inline SVG whose colours follow the page's theme (light or dark).

Matplotlib does not support CSS variables: each role is drawn in a placeholder colour, which is replaced afterwards.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulators.report.timeline import Timeline

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
_INK, _FAINT, _BAD = COLOURS["ink"], COLOURS["faint"], COLOURS["bad"]

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

Marks = Sequence[tuple[float, str]]
"""Times of kills in seconds, with the killed process."""
Spans = Sequence[tuple[float, float]]
"""Begin and end of the broker's outages, in seconds."""


def progress(line: Timeline, kills: Marks, outages: Spans) -> str:
    """Draw the cumulative counts at each station."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.6)
        _mark_faults(axes, kills, outages)
        stations = (
            ("reported", "reported", line.reported),
            ("acked", "acked", line.acked),
            ("kafka", "in Kafka", line.in_kafka),
            ("table", "in the table", line.in_table),
        )
        for colour, label, counts in stations:
            axes.plot(line.seconds, counts, color=COLOURS[colour], label=label, linewidth=2)
        finish(axes, "events")
        return svg(figure, "Events at each station of the path, over time")


def backlog(line: Timeline, kills: Marks, outages: Spans) -> str:
    """Draw the events waiting between the stations."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.0)
        _mark_faults(axes, kills, outages)
        gaps = (
            ("reported", "waiting for the ACK", line.reported, line.acked),
            ("acked", "acked, not yet in Kafka", line.acked, line.in_kafka),
            ("kafka", "in Kafka, not yet in the table", line.in_kafka, line.in_table),
        )
        for colour, label, ahead, behind in gaps:
            waiting = [max(0, a - b) for a, b in zip(ahead, behind, strict=True)]
            axes.plot(line.seconds, waiting, color=COLOURS[colour], label=label, linewidth=1.6)
        finish(axes, "events waiting")
        return svg(figure, "Events waiting between the stations, over time")


def canvas(height_inches: float) -> tuple[Figure, Axes]:
    """Return a figure of the page's width."""
    figure = Figure(figsize=(9.0, height_inches), layout="constrained")
    return figure, figure.add_subplot()


def _mark_faults(axes: Axes, kills: Marks, outages: Spans) -> None:
    for number, (begin, end) in enumerate(outages):
        label = "broker stopped" if number == 0 else None
        axes.axvspan(begin, end, color=_FAINT, alpha=0.45, linewidth=0, label=label)
    styles = {"agent": "--", "job": ":"}
    for process, style in styles.items():
        for number, second in enumerate(second for second, killed in kills if killed == process):
            label = f"{process} killed" if number == 0 else None
            axes.axvline(second, color=_BAD, linestyle=style, linewidth=1.4, label=label)


def finish(axes: Axes, unit: str, *, from_zero: bool = True) -> None:
    """Label a chart over time, with the legend beside the axes so that it covers nothing."""
    axes.set_xlim(left=0)
    if from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the first event")
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


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
