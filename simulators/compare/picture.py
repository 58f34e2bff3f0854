"""A chart of the lost and doubled events of each variant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from simulators.compare.variants import Outcome

_LOST, _DOUBLED, _REPEATS = "#b3261e", "#d98200", "#9db4c8"
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "oncegate", "font.family": "sans-serif", "font.size": 11}


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the chart as SVG on a white background."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 0.75 * len(outcomes) + 1.6), layout="constrained")
        axes = figure.add_subplot()
        most = 1
        for place, one in enumerate(outcomes):
            repeats = max(0, one.records - one.events)
            for offset, count, colour in (
                (-0.27, repeats, _REPEATS),
                (0.0, one.doubled, _DOUBLED),
                (0.27, one.lost, _LOST),
            ):
                axes.barh(place + offset, count, height=0.25, color=colour)
                axes.text(count, place + offset, f" {count:,}", va="center", fontsize=9)
                most = max(most, count)
        axes.set_yticks(range(len(outcomes)), [f"{one.variant}\n{one.description}" for one in outcomes], fontsize=9)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12 * most)
        axes.set_xlabel(f"events, of {max(one.events for one in outcomes):,} or so in each run")
        axes.spines[["top", "right"]].set_visible(False)
        handles = [mpl.patches.Patch(color=colour) for colour in (_REPEATS, _DOUBLED, _LOST)]
        names = ["more records in Kafka than events", "doubled in the table", "lost: acked, not in the table"]
        figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
