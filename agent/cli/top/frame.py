"""Formats the figures for a screen of any size; from 80 x 24 on nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator

from agent.cli.store.lines import local_time, readings_text
from agent.cli.top.figures import Figures
from agent.terminal import Colour, duration, fitted, printable, size

Line = tuple[str, Colour | None]

_OUTCOMES = {"duplicate": Colour.FAINT, "rejected": Colour.BAD, "refused": Colour.BAD}
_LATE_SECONDS = 3_600
_FULL_SHARE = 0.8


def frame(figures: Figures, columns: int, rows: int, note: str, trouble: str = "") -> list[Line]:
    """Return the lines; `note` is the last of them, `trouble` is the reason why the figures are old."""
    head = [*_head(figures, trouble), ("", None), *_links(figures), ("", None)]
    lines_left = max(0, rows - len(head) - 1)
    lists = max(0, lines_left - 3)  # of these, two for headings and one between
    devices = list(_devices(figures, lists - lists // 2))
    body = [*devices, ("", None), *_feed(figures, max(0, lines_left - len(devices) - 2))]
    lines = [*head, *body][: rows - 1]
    lines += [("", None)] * (rows - 1 - len(lines))
    lines.append((note, Colour.FAINT))
    return [(fitted(text, columns), Colour.FAINT if trouble and colour is None else colour) for text, colour in lines]


def _head(figures: Figures, trouble: str) -> Iterator[Line]:
    release, clock = f"{figures.version} {figures.form}", f"clock {figures.clock}  {local_time(figures.now)}"
    up = f"up {duration(figures.uptime_seconds)}"
    yield f"oncegate  {printable(figures.gateway)}  {release}  {up}  {clock}", Colour.STRONG
    if trouble or figures.trouble:
        yield printable(trouble or f"nothing can be stored: {figures.trouble}"), Colour.BAD
    else:
        yield "", None
    vias = "  ".join(f"{via} {rate:.1f}" for via, rate in figures.accepted_by_via.items())
    yield f"accepted    {figures.accepted:10.1f} /s   {vias}", None
    others = f"rejected {figures.rejected:.1f}  refused {figures.refused:.1f}"
    doubtful = bool(figures.rejected or figures.refused)
    yield f"duplicates  {figures.duplicates:10.1f} /s   {others}", Colour.WARNING if doubtful else None
    yield f"sent        {figures.sent:10.1f} /s   confirmed {figures.confirmed:.1f}", None
    waiting = f"not sent {figures.new:,}, awaiting receipt {figures.forwarded:,}"
    backlog = f"{figures.new + figures.forwarded:10,}      {waiting}; oldest {duration(figures.oldest_seconds)}"
    yield f"backlog     {backlog}", Colour.WARNING if figures.oldest_seconds > _LATE_SECONDS else None
    yield f"ack latency {_latency(figures)}", None
    share = figures.store_bytes / figures.store_bytes_max if figures.store_bytes_max else 0.0
    parts = f"{share:.0%} of {size(figures.store_bytes_max)}, log {size(figures.log_bytes)}"
    store = f"{size(figures.store_bytes):>10}      {parts}; written {size(figures.written_bytes)}"
    yield f"store       {store}", Colour.WARNING if share > _FULL_SHARE else None
    yield f"memory      {size(figures.memory_bytes):>10}      CPU {figures.cpu_share:.0%} of a core", None


def _latency(figures: Figures) -> str:
    if figures.commit_seconds_mean is None or figures.commit_seconds_95 is None:
        return "         -      no commit"
    return (
        f"{figures.commit_seconds_mean * 1000:7.1f} ms      95 % within {figures.commit_seconds_95 * 1000:g} ms; "
        f"{figures.commits:.1f} commits/s"
    )


def _links(figures: Figures) -> Iterator[Line]:
    for name, link in figures.links.items():
        reason = f": {link['reason']}" if link["reason"] else ""
        text = f"{name:11} {link['state']} since {local_time(link['since'])}{reason}"
        yield printable(text), Colour.GOOD if link["up"] else Colour.BAD


def _devices(figures: Figures, most: int) -> Iterator[Line]:
    yield f"{'device':32} {'events':>9} {'duplicates':>10} {'rejected':>8}  last seen", Colour.STRONG
    for one in figures.devices[:most]:
        text = (
            f"{fitted(printable(one['device']), 32)} {one['events']:>9,} {one['duplicates']:>10,} "
            f"{one['rejected']:>8,}  {local_time(one['last_seen'])}"
        )
        yield text, Colour.WARNING if one["rejected"] else None


def _feed(figures: Figures, most: int) -> Iterator[Line]:
    yield f"{'outcome':10} {'via':11} {'device':32} what", Colour.STRONG
    for entry in list(reversed(figures.feed))[:most]:
        what = entry["reason"] or readings_text(entry.get("data"), entry.get("units")) or entry["fingerprint"]
        text = f"{entry['outcome']:10} {entry['via']:11} {fitted(printable(entry['device']), 32)} {printable(what)}"
        yield text, _OUTCOMES.get(entry["outcome"])
