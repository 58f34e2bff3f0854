"""The report page: the verdict first, then the overview, then the details."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from contract.timestamp import rfc3339
from simulators import ledger
from simulators.oracle.verdict import DECLARED, Verdict, sentence
from simulators.report import charts
from simulators.report.observations import Observations, observe, quantiles
from simulators.report.pictures import Station, branch, resends, sankey

_PAGE = Path(__file__).with_name("page.html")
_COLUMNS = (
    "sensor",
    "events",
    "transmissions",
    "acked",
    "refused",
    "given up",
    "open",
    "most often sent",
    "slowest ms",
)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals in Kafka and in the table: times in milliseconds since 1970 UTC, with the number of events."""

    kafka: list[tuple[int, int]] = field(default_factory=list)
    table: list[tuple[int, int]] = field(default_factory=list)


def write(ledger_file: Path, verdict: Verdict, arrivals: Arrivals, path: Path) -> None:
    """Write the report of one run."""
    seen = observe(ledger.read(ledger_file))
    kafka, table = (_by_step(seen, times) for times in (arrivals.kafka, arrivals.table))
    scenario = seen.run.get("scenario", {})
    page = Template(_PAGE.read_text()).substitute(
        name=escape(str(scenario.get("name", ledger_file.stem))),
        verdict=f'<p class="verdict {_class(verdict)}">{escape(sentence(verdict))}</p>',
        story=escape(_story(seen, verdict, scenario)),
        flow=sankey(_stations(seen, verdict)),
        declared=_declared(verdict),
        violations=_violations(verdict),
        rates=charts.rates(seen, kafka, table) if seen.sent else "<p>No event was sent.</p>",
        backlog=charts.backlog(seen, kafka, table),
        latency=charts.latency(seen),
        waits=_waits(seen),
        origin=_origin(seen),
        opened="" if verdict.kept and not verdict.declared else " open",
        faults=_faults(seen),
        scenario=escape(json.dumps(scenario, indent=2, ensure_ascii=False)),
        sensors=_sensors(seen),
    )
    path.write_text(page)


def _waits(seen: Observations) -> str:
    bins = sum(seen.latencies.values(), start=Counter[int]())
    median, high, slowest = (milliseconds / 1000 for milliseconds in quantiles(bins, 0.5, 0.95, 1.0))
    return f"Median {median:.2g} s, 95th percentile {high:.2g} s, maximum {slowest:.2g} s." if bins else ""


def _origin(seen: Observations) -> str:
    """Return when, by which version and on which machine the run was made."""
    when = rfc3339(seen.begin)[:19].replace("T", " ") + " UTC" if seen.begin is not None else ""
    parts = (when, seen.run.get("version", ""), seen.run.get("machine", ""))
    return escape(" · ".join(str(part) for part in parts if part))


def _story(seen: Observations, verdict: Verdict, scenario: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{fleet['sensors']:,} {fleet['kind']}" for fleet in scenario.get("fleets", ()))
    played = (
        f"{scenario.get('description', '')} Sensors: {kinds} ({seen.run.get('targets', 'unknown target')}), "
        if scenario
        else ""
    )
    times = verdict.transmissions / max(1, verdict.events)
    counts = f"{verdict.events:,} events were sent {times:.2f} times each on average; {verdict.acked:,} were acked."
    ends = ", ".join(f"{count:,} {end}" for end, count in _unacked(seen, verdict, verdict.events))
    unacked = f" {verdict.events - verdict.acked:,} got no ACK: {ends}." if ends else ""
    return f"{played}seed {seen.run.get('seed', 'unknown')}. {counts}{unacked}"


def _stations(seen: Observations, verdict: Verdict) -> list[Station]:
    sent = seen.events_sent
    again = resends(verdict.transmissions - sent, _of_this_run(seen, "duplicates"))
    stations = [
        Station("transmissions", verdict.transmissions, "reported", again),
        Station("events sent", sent, "reported", _unacked(seen, verdict, sent)),
        Station("acked", verdict.acked, "acked"),
    ]
    accepted = _of_this_run(seen, "accepted")
    # A restored older store has a smaller count of accepted events.
    if accepted is not None and accepted >= verdict.acked:
        stations.append(Station("accepted as new", accepted, "acked"))
    if verdict.records is not None:
        repeats = branch(verdict.records - (verdict.rows or verdict.records), "repeats")
        stations.append(Station("records in Kafka", verdict.records, "kafka", repeats))
    if verdict.rows is not None:
        label, colour = ("events in Kafka", "kafka") if verdict.of_topic else ("rows in the table", "table")
        stations.append(Station(label, verdict.rows, colour))
    return stations


def _unacked(seen: Observations, verdict: Verdict, events: int) -> tuple[tuple[str, int], ...]:
    """Return what became of those of so many events that were not acked."""
    silent = events - verdict.acked - verdict.refused - verdict.given_up
    return (
        *branch(verdict.refused, f"refused ({', '.join(sorted(seen.codes))})"),
        *branch(verdict.given_up, "given up"),
        *branch(silent, "never answered"),
    )


def _of_this_run(seen: Observations, name: str) -> int | None:
    """Return a gateway's counter without what it was before the run."""
    latest = _latest(seen, name)
    return None if latest is None else latest - (_latest(seen, f"{name}_before") or 0)


def _latest(seen: Observations, name: str) -> int | None:
    return next((sampled.values[name] for sampled in reversed(seen.samples) if name in sampled.values), None)


def _class(verdict: Verdict) -> str:
    """Return the CSS class of the verdict; neither good nor bad where it could not be judged."""
    if verdict.faults or verdict.vacuous:
        return "bad"
    return "good" if verdict.kept and verdict.complete else "unverified"


def _declared(verdict: Verdict) -> str:
    known = {limit: count for limit, count in verdict.declared.items() if count}
    if not known:
        return ""
    entries = "".join(
        f"<dt>{limit}: {count:,}</dt><dd>{escape(DECLARED[limit])}</dd>" for limit, count in known.items()
    )
    return f"<section><h2>Declared limits that occurred</h2><dl>{entries}</dl></section>"


def _violations(verdict: Verdict) -> str:
    if not verdict.violations:
        return ""
    entries = []
    for violation in verdict.violations:
        head, *history = str(violation).split("\n")
        lines = escape("\n".join(history))
        entries.append(f'<details><summary class="bad">{escape(head)}</summary><pre>{lines}</pre></details>')
    return f"<section><h2>Violations with their histories</h2>{''.join(entries)}</section>"


def _faults(seen: Observations) -> str:
    if not seen.faults:
        return ""
    begin, numbers = seen.begin or 0, {id(fault): number for number, fault in enumerate(charts.begun(seen), start=1)}
    rows = "".join(
        f"<tr><td class=number>{numbers.get(id(fault), '')}</td>"
        f"<td class=number>{max(0, fault.at - begin) / 1000:.1f} s</td><td>{escape(fault.part)}</td>"
        f"<td>{escape(fault.what)}</td></tr>"
        for fault in seen.faults
    )
    head = '<tr><th class="number">no.</th><th class="number">at</th><th>service</th><th>event</th></tr>'
    table = f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    return f"<section><h2>Faults</h2><p>The charts mark them by these numbers.</p>{table}</section>"


def _sensors(seen: Observations) -> str:
    rows = [
        (
            name,
            *(one.events, one.transmissions, one.acked, one.refused, one.given_up),
            *(one.events - one.acked - one.refused - one.given_up, one.sent_max, one.slowest_ms),
        )
        for name, one in seen.devices.items()
    ]
    # Inside a script element only `<` needs escaping.
    return json.dumps({"columns": _COLUMNS, "rows": rows}, separators=(",", ":")).replace("<", "\\u003c")


def _by_step(seen: Observations, moments: list[tuple[int, int]]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for moment, number in moments:
        counted[seen.step(moment)] += number
    return counted
