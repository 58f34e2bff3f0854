"""The results of soaks: a file with one entry for each run, and the page with their table and the latest pictures."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulators.oracle.verdict import BROKEN
from simulators.soak.plan import SoakOptions
from simulators.soak.run import SoakOutcome, summary, thinned

PAGE, PICTURE = "verification.md", "soak.svg"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
HEAD = (
    "| date | version | commit | delivery | lanes | hours | events | transmissions | faults | link outages "
    "| checkpoints | lost | duplicated | other findings |"
)
_MEBIBYTE = 1 << 20
_PANELS = (
    ("memory, MiB", " memory", _MEBIBYTE),
    ("file descriptors", " files", 1),
    ("disk, MiB", " disk", _MEBIBYTE),
)
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "oncegate", "font.family": "sans-serif", "font.size": 10}
_ROOT = Path(__file__).resolve().parents[2]

Entry = Mapping[str, Any]


def entry_of(options: SoakOptions, outcome: SoakOutcome) -> Entry:
    """Return the entry of a run, as JSON types."""
    found = outcome.verdict
    return {
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "version": metadata.version("oncegate"),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "load": round(os.getloadavg()[2], 1),
        "seed": options.seed,
        "hours": round(outcome.seconds / 3600, 2),
        "events_per_second": options.events_per_second,
        "delivery": options.delivery,
        "lanes": 1 + options.lanes,
        "events": found.events,
        "acked": found.acked,
        "transmissions": found.transmissions,
        "records": found.records,
        "rows": found.rows,
        "checkpoints": outcome.checkpoints,
        "faults": outcome.faults,
        "link_outages": outcome.outages,
        "ended_by_themselves": [asdict(end) for end in outcome.ends],
        "found": {name: getattr(found, name) for name in BROKEN},
        "declared": dict(found.declared),
        "start_middle_end": summary(outcome.samples),
        "samples": thinned(outcome.samples),
    }


def keep(file: Path, entry: Entry) -> None:
    """Add an entry to the file, without its samples; draw these, and update the page in the folder above."""
    entries = [*read(file), {name: value for name, value in entry.items() if name != "samples"}]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[\n" + ",\n".join(json.dumps(one) for one in entries) + "\n]\n")
    folder = file.parent.parent
    draw(entry, folder / PICTURE)
    page = folder / PAGE
    if page.exists():
        page.write_text(with_results(page.read_text(), entries))


def read(file: Path) -> Sequence[Entry]:
    """Return the entries of a file, in order of time; none where it does not exist."""
    if not file.exists():
        return []
    entries: Sequence[Entry] = json.loads(file.read_text())
    return entries


def with_results(page: str, entries: Sequence[Entry]) -> str:
    """Return the page with the tables of these entries between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(_tables(entries))
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def draw(entry: Entry, file: Path) -> None:
    """Draw memory, file descriptors and disk of a run over its time, as SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 8.0), layout="constrained")
        for axes, (label, ending, unit) in zip(figure.subplots(3, 1, sharex=True), _PANELS, strict=True):
            _draw_panel(axes, entry["samples"], ending, unit)
            axes.set_ylabel(label)
        axes.set_xlabel("minutes")
        figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})


def _draw_panel(axes: Axes, samples: Sequence[Mapping[str, int]], ending: str, unit: int) -> None:
    for name in sorted({name for sample in samples for name in sample if name.endswith(ending)}):
        points = [(sample["seconds"] / 60, sample[name] / unit) for sample in samples if name in sample]
        axes.plot(*zip(*points, strict=True), label=name.removesuffix(ending), linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _tables(entries: Sequence[Entry]) -> Iterator[str]:
    if not entries:
        yield "No run was kept yet."
        return
    yield from (HEAD, "|" + "---|" * (HEAD.count("|") - 1))
    for one in entries:
        found = one["found"]
        others = sum(count for name, count in found.items() if name not in ("lost", "doubled"))
        cells = (
            *(one["ended"][:10], one["version"], f"`{one['commit']}`", one["delivery"], one["lanes"], one["hours"]),
            f"{one['events']:,}",
            *(f"{one['transmissions']:,}", sum(one["faults"].values()), one["link_outages"], one["checkpoints"]),
            *(found["lost"], found["doubled"], others),
        )
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    latest = entries[-1]
    faults = ", ".join(f"{name} {count}" for name, count in latest["faults"].items())
    yield f"Faults of the latest run (seed {latest['seed']}, {latest['machine']}, load {latest['load']}): {faults}."
    yield from ("", f"![Memory, file descriptors and disk of the latest run]({PICTURE})")


def _commit() -> str:
    """Return the commit of this checkout, with a plus sign where files differ from it."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
