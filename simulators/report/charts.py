"""The charts of a field test, drawn by matplotlib as SVG in the page's colours (pictures.py)."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from simulators.ledger import Happened
from simulators.report.observations import STEP_MILLISECONDS, Observations, quantiles
from simulators.report.pictures import COLOURS, STYLE, canvas, finish, svg

_ENDS = frozenset({"runs again", "resumed", "disk has space"})
_NEAR = 0.025
"""Faults closer to one another than this share of the width have a common label."""


def rates(seen: Observations, kafka: Mapping[int, int], table: Mapping[int, int]) -> str:
    """Draw the events per second at each station."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.4)
        steps = _steps(seen, kafka, table)
        for colour, label, counts in (
            ("reported", "transmissions", seen.sent),
            ("acked", "acked", seen.acked),
            ("bad", "refused", seen.refused),
            ("kafka", "into Kafka", kafka),
            ("table", "into the table", table),
        ):
            if counts:
                axes.plot(_seconds(steps), [counts.get(step, 0) for step in steps], color=COLOURS[colour], label=label)
        # A batch of the table is thousands of events in one second.
        axes.set_yscale("symlog", linthresh=1)
        _mark(axes, seen)
        finish(axes, "events a second (log)")
        return svg(figure, "Events a second at each station")


def backlog(seen: Observations, kafka: Mapping[int, int], table: Mapping[int, int]) -> str:
    """Draw the events waiting between the stations."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.0)
        steps = _steps(seen, kafka, table)
        reported, acked, in_kafka, in_table = (
            list(accumulate(counts.get(step, 0) for step in steps))
            for counts in (seen.reported, seen.acked, kafka, table)
        )
        lines = [("reported", "waiting for the ACK", reported, acked)]
        lines += [("acked", "acked, not yet in Kafka", acked, in_kafka)] if kafka else []
        lines += [("kafka", "in Kafka, not yet in the table", in_kafka, in_table)] if kafka and table else []
        for colour, label, ahead, behind in lines:
            waiting = [max(0, one - other) for one, other in zip(ahead, behind, strict=True)]
            axes.plot(_seconds(steps), waiting, color=COLOURS[colour], label=label)
        _mark(axes, seen)
        finish(axes, "events waiting")
        return svg(figure, "Events waiting between the stations")


def latency(seen: Observations) -> str:
    """Draw the time to the ACK, including resends."""
    with mpl.rc_context(STYLE):
        figure, axes = canvas(3.0)
        steps = sorted(seen.latencies)
        curves = [quantiles(seen.latencies[step], 0.5, 0.95, 1.0) for step in steps]
        for place, (colour, label) in enumerate(
            (("table", "median"), ("acked", "95th percentile"), ("reported", "maximum"))
        ):
            values = [curve[place] / 1000 for curve in curves]
            axes.plot(_seconds(steps), values, color=COLOURS[colour], label=label, marker=".", markersize=3)
        axes.set_yscale("log")
        _mark(axes, seen)
        finish(axes, "seconds to the ACK", from_zero=False)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        return svg(figure, "Seconds from the first transmission to the ACK")


def begun(seen: Observations) -> list[Happened]:
    """Return the faults that begin, in the order of their numbers in the charts."""
    return [fault for fault in seen.faults if fault.what not in _ENDS]


def _mark(axes: Axes, seen: Observations) -> None:
    """Mark the begin of faults by lines, with their numbers above the chart."""
    labels: list[tuple[float, list[str]]] = []
    width = axes.get_xlim()[1]
    for number, fault in enumerate(begun(seen), start=1):
        second = 0.0 if seen.begin is None else (fault.at - seen.begin) / 1000
        axes.axvline(second, color=COLOURS["bad"], linestyle=":", linewidth=1.2)
        if labels and second - labels[-1][0] < _NEAR * width:
            labels[-1][1].append(str(number))
        else:
            labels.append((second, [str(number)]))
    if labels:
        top = axes.secondary_xaxis("top")
        top.set_xticks([second for second, _ in labels], [",".join(numbers) for _, numbers in labels], fontsize=8)
        top.spines["top"].set_visible(False)
        top.tick_params(length=0)


def _steps(*counted: Observations | Mapping[int, int]) -> range:
    last = 0
    for one in counted:
        counters = (one.reported, one.sent, one.acked) if isinstance(one, Observations) else (one,)
        last = max(last, *(max(counts, default=0) for counts in counters))
    return range(last + 2)


def _seconds(steps: Sequence[int]) -> list[float]:
    return [step * STEP_MILLISECONDS / 1000 for step in steps]
