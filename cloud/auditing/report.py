"""The report of an audit: text, a self-contained HTML page, and metrics in a file, since no process remains to ask."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pyspark.sql import Row

from cloud.auditing import forgery
from cloud.auditing.account import COUNTED, STATES
from cloud.auditing.findings import Findings
from cloud.auditing.sections import STATUSES
from cloud.runtime.outcome import counted, printable

LINES_MAX = 20
METRICS_MODE = 0o644
"""The exporter runs as another user, whatever the umask of the audit's unit."""
_NARROW_COLUMNS = 4
"""A table with more columns becomes a list on a phone."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Oncegate audit</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1c2330; }}
h1 {{ color: {colour}; font-size: 1.6rem; }} h2 {{ font-size: 1.15rem; margin: 2rem 0 .25rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }} dt {{ color: #566073; }}
dd {{ margin: 0; overflow-wrap: anywhere; }} p {{ margin: .25rem 0; color: #566073; }}
table {{ border-collapse: collapse; margin: .5rem 0; }}
td, th {{ border-bottom: 1px solid #d5dae3; padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }} td.n, th.n {{ text-align: right; }}
td.n, td.s {{ white-space: nowrap; }}
.wide td, .wide th {{ font-size: 12.5px; padding: .2rem; }} code {{ font-size: .92em; }}
.wide td.z {{ color: #6b7485; }}
@media (max-width: 60rem) {{
  .wide thead {{ display: none; }} .wide tr, .wide tbody {{ display: block; }}
  .wide tr {{ border-bottom: 2px solid #d5dae3; padding: .5rem 0; }}
  .wide td {{ display: flex; justify-content: space-between; gap: 1rem; border: 0; font-size: 15px; }}
  .wide td.n {{ text-align: left; }}
  .wide td::before {{ content: attr(data-name); color: #566073; flex: none; }} .wide td.z {{ display: none; }}
}}
</style></head><body><main><h1>{verdict}</h1>{body}</main></body></html>
"""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the report; `total` is how many rows it would have without a limit."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    total: int = 0


def lines(findings: Findings) -> Iterator[str]:
    """Yield the lines of a short report."""
    yield verdict(findings)
    for name, value in facts(findings):
        yield printable(f"{name}: {value}")
    counts = ", ".join(f"{name} {number:,}" for name, number in sorted(findings.counts.items()))
    yield f"labels: {counts or 'none'}"
    yield f"sections: {_sections(findings)}"
    yield "epochs: " + (", ".join(f"{state} {number:,}" for state, number in sorted(findings.states.items())) or "none")
    named = [f"{one.status}: {one.gateway} {one.epoch} {_range(one.first, one.last)}" for one in findings.wrong]
    named += [f"differs: {one.gateway} {one.epoch} {_range(one.first, one.last)}" for one in findings.differing]
    named += [
        f"{one.status}: partition {one.kafka_partition} offset {one.kafka_offset} fingerprint {one.fingerprint} "
        + (f"device {one.device} " if one.device else "")
        + f"label {_label(one)}"
        for one in findings.records
    ]
    yield from map(printable, named[:LINES_MAX])
    if len(named) > LINES_MAX:
        yield f"and {len(named) - LINES_MAX:,} more: see the report, or the tables"


def verdict(findings: Findings) -> str:
    """Return the outcome as one sentence."""
    if findings.is_whole:
        return "Every label is accounted for."
    faults = ((name.split(" ", 1), count) for name, count in findings.faults().items() if count)
    return "Not whole: " + ", ".join(f"{counted(count, thing)} {what}" for (thing, what), count in faults) + "."


def facts(findings: Findings) -> list[tuple[str, str]]:
    """Return what makes the report evidence: when, by which versions, of what, and up to where."""
    told, given, tables = findings.subject, findings.subject.settings, findings.subject.settings.tables
    gone, series = told.span.gone, told.series
    grace = counted(given.grace_seconds, "second")
    found = [
        ("at", f"{told.ended:%Y-%m-%d %H:%M:%S} UTC"),
        ("audit", f"number {series.number:,} in its folder; the first was at {series.since:%Y-%m-%d %H:%M:%S} UTC"),
        ("versions", f"oncegate {told.version}, Spark {told.spark}"),
        ("table", f"{tables.table} ({tables.kind.name}), quarantine {tables.quarantine}"),
        ("topic", f"{given.topic} (id {told.span.topic_id}) at {given.bootstrap_servers}"),
        ("receipts", f"offsets of group {given.group}"),
        ("grace", f"{grace} until a label that has not arrived is missing"),
        ("read now", counted(told.span.offsets, "offset")),
    ]
    verified, unread = (findings.totals.get(name, 0) for name in (forgery.VERIFIED, forgery.UNVERIFIABLE))
    if verified or unread or findings.totals.get(forgery.FORGED):
        found.append(("fingerprints", f"{verified:,} verified now, {unread:,} unverifiable"))
    if given.gateways is not None:
        found.append(("digests", f"of records that a key of {given.gateways} has signed"))
    if gone:
        why = "deleted before any audit: duplicates there are not listed"
        found.append(("not read", f"{counted(gone, 'offset')} {why}"))
    return found


def page(findings: Findings) -> str:
    """Return the report as an HTML page."""
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(findings))
    colour = "#1a6b3c" if findings.is_whole else "#a3231f"
    body = f"<dl>{terms}</dl>" + "".join(map(_html, _tables(findings)))
    return _PAGE.format(colour=colour, verdict=escape(verdict(findings)), body=body)


def _tables(findings: Findings) -> list[_Table]:
    totals, span = findings.totals, findings.subject.span
    return [
        _Table("Labels of all audits", ("status", "labels"), sorted(findings.counts.items())),
        _Table(
            "Missing, unwritten, vanished, ambiguous",
            ("status", "gateway", "epoch", "labels"),
            [(one.status, one.gateway, one.epoch, _range(one.first, one.last)) for one in findings.wrong],
            totals["wrong"],
        ),
        _Table(
            "Their records in the topic, the rows of doubled and forged events, and what was dropped for these",
            ("status", "partition", "offset", "fingerprint", "device", "label"),
            [
                (
                    one.status,
                    *map(str, (one.kafka_partition, one.kafka_offset, one.fingerprint)),
                    one.device or "-",
                    _label(one),
                )
                for one in findings.records
            ],
            totals["records"],
        ),
        _Table(
            "Sections",
            ("status", "sections", "labels"),
            [(status, *found) for status, found in sorted(findings.sections.items())],
        ),
        _Table(
            "Sections that differ from what the gateway has stated",
            ("gateway", "epoch", "labels"),
            [(one.gateway, one.epoch, _range(one.first, one.last)) for one in findings.differing],
            findings.sections["differs"][0] if findings.differing else 0,
        ),
        _Table("Doubled in the table", ("fingerprint",), [(one,) for one in findings.doubled], totals["doubled"]),
        _Table(
            "Epochs",
            ("gateway", "epoch", "state", "last", *COUNTED, *(f"section {status}" for status in STATUSES)),
            [
                (
                    *(one.gateway, one.epoch, one.state, one.last, *(one[name] for name in COUNTED)),
                    *(findings.section_labels.get((one.gateway, one.epoch), {}).get(name, 0) for name in STATUSES),
                )
                for one in findings.epochs
            ],
            totals["epochs"],
        ),
        _Table(
            "Offsets of the topic",
            ("partition", "read by earlier audits, or deleted, up to", "audited up to"),
            [(str(one), str(span.starts[one]), str(end)) for one, end in sorted(span.ends.items())],
        ),
    ]


def _sections(findings: Findings) -> str:
    counts = [
        f"{status} {number:,} ({counted(labels, 'label')})"
        for status, (number, labels) in sorted(findings.sections.items())
    ]
    return ", ".join(counts) or "none"


def _html(table: _Table) -> str:
    if not table.rows:
        return ""
    of_all = f"<p>The first {len(table.rows):,} of {table.total:,}.</p>" if table.total > len(table.rows) else ""
    numbers = [isinstance(value, int) for value in table.rows[0]]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(table.names, numbers, strict=True)
    )
    body = "".join("<tr>" + "".join(map(_cell, table.names, row)) + "</tr>" for row in table.rows)
    wide = ' class="wide"' if len(table.names) > _NARROW_COLUMNS else ""
    head = f"<thead><tr>{head}</tr></thead>"
    return f"<h2>{escape(table.title)}</h2>{of_all}<table{wide}>{head}<tbody>{body}</tbody></table>"


def _cell(name: str, value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n{"" if value else " z"}" data-name="{escape(name)}">{value:,}</td>'
    is_word = ' class="s"' if name == "status" else ""
    return f'<td{is_word} data-name="{escape(name)}"><bdi>{escape(printable(str(value)))}</bdi></td>'


def _label(record: Row) -> str:
    return f"{record.gateway} {record.epoch} {record.sequence}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def write_metrics(findings: Findings, path: Path) -> None:
    """Replace the file in one step; docs/cloud.md explains each metric."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    sections = {status: findings.sections.get(status, (0, 0))[0] for status in STATUSES}
    for name, about, label, counts in (
        ("labels", "Labels of all audits, by status", "status", findings.counts),
        ("sections", "Sections of the gateways' hash chains, by status", "status", sections),
        ("epochs", "Epochs of all gateways, by state", "state", {one: findings.states.get(one, 0) for one in STATES}),
    ):
        gauge = Gauge(f"oncegate_audit_{name}", about, [label], registry=registry)
        for value, count in counts.items():
            gauge.labels(value).set(count)
    Gauge("oncegate_audit_findings", "Labels and events that are not as they should be", registry=registry).set(
        sum(findings.faults().values())
    )
    Gauge("oncegate_audit_timestamp_seconds", "Time of the end of the last audit", registry=registry).set(time.time())
    written = path.with_name(f"{path.name}.new")  # the exporter reads *.prom alone
    written.write_bytes(generate_latest(registry))
    written.chmod(METRICS_MODE)
    written.replace(path)
