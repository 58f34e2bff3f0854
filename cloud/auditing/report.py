"""The report of an audit, as text and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from cloud.auditing.account import COUNTED
from cloud.auditing.findings import Epoch, Findings
from cloud.auditing.sections import STATUSES

LINES_MAX = 20

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Oncegate audit</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2330; }}
h1 {{ color: {colour}; }} table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ border-bottom: 1px solid #d5dae3; padding: .25rem .75rem; text-align: left; }} td.n {{ text-align: right; }}
</style></head><body><h1>{verdict}</h1>{body}</body></html>
"""


def lines(findings: Findings) -> Iterator[str]:
    """Yield the lines of a short report."""
    yield verdict(findings)
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(findings.counts.items()))
    yield f"labels: {counts or 'none'}; read now: {findings.read:,} offsets"
    yield f"sections: {_sections(findings)}"
    if findings.gone:
        yield f"{findings.gone:,} offsets were deleted before an audit read them: their duplicates are not listed"
    named = [f"{one.status}: {one.gateway} {one.epoch} {_range(one.first, one.last)}" for one in findings.wrong]
    named += [f"differs: {one.gateway} {one.epoch} {_range(one.first, one.last)}" for one in findings.differing]
    named += [
        f"unwritten: partition {one.partition} offset {one.offset} fingerprint {one.fingerprint} device {one.device} "
        f"label {one.label}"
        for one in findings.unwritten
    ]
    named += [f"doubled: fingerprint {one}" for one in findings.doubled]
    yield from named[:LINES_MAX]
    if len(named) > LINES_MAX:
        yield f"and {len(named) - LINES_MAX} more: see the report, or the tables"


def verdict(findings: Findings) -> str:
    """Return the outcome as one sentence."""
    if findings.is_whole:
        return "Every label is accounted for."
    return "Not whole: " + ", ".join(_counted(*fault) for fault in findings.faults().items() if fault[1]) + "."


def _counted(name: str, count: int) -> str:
    thing, _, what = name.partition(" ")
    return f"{count:,} {thing}{'s' * (count != 1)} {what}"


def page(findings: Findings) -> str:
    """Return the report as an HTML page."""
    parts = [
        f"<p>{findings.read:,} offsets were read for this audit; {findings.gone:,} were deleted before.</p>",
        _table("Labels of all audits", ("status", "labels"), sorted(findings.counts.items())),
        _table(
            "Missing, unwritten, vanished, ambiguous",
            ("status", "gateway", "epoch", "labels"),
            [(one.status, one.gateway, one.epoch, _range(one.first, one.last)) for one in findings.wrong],
        ),
        _table(
            "Receipted, and not in the table",
            ("partition", "offset", "fingerprint", "device", "label"),
            [(one.partition, one.offset, one.fingerprint, one.device, one.label) for one in findings.unwritten],
        ),
        _table(
            "Sections",
            ("status", "sections", "labels"),
            [(status, found.sections, found.labels) for status, found in sorted(findings.sections.items())],
        ),
        _table(
            "Sections that differ from what the gateway has stated",
            ("gateway", "epoch", "labels"),
            [(one.gateway, one.epoch, _range(one.first, one.last)) for one in findings.differing],
        ),
        _table("Doubled in the table", ("fingerprint",), [(one,) for one in findings.doubled]),
        _table(
            "Epochs",
            ("gateway", "epoch", "state", "last", *COUNTED, *STATUSES),
            [
                (
                    *(one.gateway, one.epoch, one.state, one.last, *(one.counts[name] for name in COUNTED)),
                    *_by_section(findings, one),
                )
                for one in findings.epochs
            ],
        ),
    ]
    colour = "#1a6b3c" if findings.is_whole else "#a3231f"
    return _PAGE.format(colour=colour, verdict=escape(verdict(findings)), body="".join(parts))


def _sections(findings: Findings) -> str:
    counts = [
        f"{status} {found.sections:,} ({found.labels:,} labels)" for status, found in sorted(findings.sections.items())
    ]
    return ", ".join(counts) or "none"


def _by_section(findings: Findings, epoch: Epoch) -> list[int]:
    counts = findings.section_labels.get((epoch.gateway, epoch.epoch), {})
    return [counts.get(status, 0) for status in STATUSES]


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
