"""The report of the demo: one self-contained HTML file with a light and a dark theme."""

from __future__ import annotations

from datetime import datetime
from html import escape
from pathlib import Path
from string import Template

from simulators import ledger
from simulators.demo import summary
from simulators.demo.options import ANSWER_LOSS, FASTER, REQUEST_LOSS
from simulators.demo.run import DemoResult
from simulators.demo.summary import Summary
from simulators.oracle.verdict import DECLARED, sentence
from simulators.report import charts, pictures
from simulators.report.sankey import Station, branch, listed, resends, sankey
from simulators.report.timeline import Timeline, timeline, transmissions_per_event

_PAGE = Path(__file__).with_name("report.html")


def write(evidence: DemoResult, path: Path) -> None:
    """Write the report."""
    figures = evidence.summary
    line = timeline(ledger.read(evidence.ledger), evidence.first_times, evidence.commits)
    kills = [(_second(line, kill.time), kill.process) for kill in figures.kills]
    outages = [(_second(line, outage.begin), _second(line, outage.end)) for outage in figures.outages]
    stations = _stations(figures)
    page = Template(_PAGE.read_text()).substitute(
        verdict=_verdict(figures),
        story=_story(figures),
        flow=sankey(stations),
        stations=listed(stations),
        progress=pictures.progress(line, kills, outages),
        backlog=pictures.backlog(line, kills, outages),
        resends=charts.times_sent(transmissions_per_event(ledger.read(evidence.ledger))),
        figures=_figures(figures),
        kills=_kills(figures, line),
        violations=_violations(evidence),
    )
    path.write_text(page)


def _verdict(figures: Summary) -> str:
    kind = "good" if figures.verdict.kept else "bad"
    return f'<p class="verdict {kind}">{escape(sentence(figures.verdict))}</p>'


def _story(figures: Summary) -> str:
    events = figures.verdict.events
    equal = figures.equal_readings / max(1, events)
    ends = f" The job ended by itself {_times(figures.job_ends)} and was started again." if figures.job_ends else ""
    killed = [sum(kill.process == process for kill in figures.kills) for process in ("agent", "job")]
    return (
        f"{figures.sensors:,} CoAP sensors reported {events:,} events over a radio that loses {REQUEST_LOSS:.0%} of "
        f"the requests and {ANSWER_LOSS:.0%} of the ACKs; each sent its event again until it was acked, with the "
        f"waiting times of RFC 7252 divided by {FASTER}. {equal:.0%} of the readings were equal to an earlier one of "
        f"the same sensor. Meanwhile the agent was killed {_times(killed[0])}, the job {_times(killed[1])}, and the "
        f"broker was stopped {_times(len(figures.outages))}.{ends} The run took {figures.seconds:.0f} s; its seed is "
        f"{figures.seed}."
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _stations(figures: Summary) -> list[Station]:
    verdict = figures.verdict
    records, rows = verdict.records or 0, verdict.rows or 0
    again = resends(figures.requests - verdict.events, figures.duplicates)
    return [
        Station("transmissions", figures.requests, "reported", again),
        Station("events sent", verdict.events, "reported", branch(verdict.events - verdict.acked, "not acked")),
        Station("acked", verdict.acked, "acked"),
        Station("accepted as new", figures.accepted, "acked"),
        Station("records in Kafka", records, "kafka", branch(records - rows, "repeats")),
        Station("rows in the table", rows, "table"),
    ]


def _figures(figures: Summary) -> str:
    declared = {f"declared, {limit}: {DECLARED[limit]}": count for limit, count in figures.verdict.declared.items()}
    rows = {**{summary.LABELS[name]: count for name, count in figures.figures().items()}, **declared}
    return "".join(f"<tr><td>{escape(label)}</td><td class=number>{count:,}</td></tr>" for label, count in rows.items())


def _kills(figures: Summary, line: Timeline) -> str:
    rows = []
    for kill in sorted(figures.kills, key=lambda kill: kill.time):
        numbers = (f"{_second(line, kill.time):.1f} s", str(kill.unacked), str(kill.outbox_rows))
        cells = "".join(f"<td class=number>{number}</td>" for number in numbers)
        rows.append(f"<tr><td>{kill.process}</td>{cells}<td>{escape(kill.batch_stage)}</td></tr>")
    return "".join(rows)


def _violations(evidence: DemoResult) -> str:
    violations = evidence.summary.verdict.violations
    if not violations:
        return ""
    items = "".join(f"<li>{escape(str(violation))}</li>" for violation in violations)
    return f"<section><h2>Violations</h2><ul>{items}</ul></section>"


def _second(line: Timeline, moment: str) -> float:
    """Return the position of an RFC 3339 timestamp on the time line, in seconds."""
    return line.second(round(datetime.fromisoformat(moment).timestamp() * 1000))
