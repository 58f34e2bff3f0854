"""The plot of a replay: losses and memory by the filters' false-positive rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cloud.bloom_shadow.figures import Figures


def plot(figures: Sequence[Figures], records: int, file: Path) -> None:
    """Write a plot with two panels: real events lost, and bytes per key."""
    alone = [one for one in figures if one.method == "bloom"]
    both = [one for one in figures if one.method == "bloom+exact"]
    exact = next(one for one in figures if one.method == "exact")
    rates = [one.rate for one in alone]
    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    left.plot(rates, [one.lost for one in alone], "o-", label="Bloom filters alone")
    left.plot(rates, [one.lost for one in both], "s--", label="with an exact index behind, or exact alone")
    left.set_yscale("symlog", linthresh=1)
    left.set_ylabel(f"real events lost, of {records:,} records")
    right.plot(rates, [one.bytes_per_key for one in alone], "o-", label="Bloom filters alone")
    right.plot(rates, [one.bytes_per_key for one in both], "s--", label="Bloom in front of exact")
    right.axhline(exact.bytes_per_key, color="0.4", linestyle=":", label="exact alone (on disk)")
    right.set_ylabel("bytes per key")
    right.set_ylim(bottom=0)
    for panel in (left, right):
        panel.set_xscale("log")
        panel.invert_xaxis()
        panel.set_xlabel("false-positive rate")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    drawn.savefig(file, metadata={"Date": None})
