"""The whole history of what went wrong: the ledger's lines, the records, the rows, and the agent's own trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from contract.moment import rfc3339
from simulators import ledger
from simulators.ledger import Acked, GivenUp, Line, Refused, Sent, Told
from simulators.oracle.casebook import Casebook
from simulators.oracle.verdict import Verdict, Violation

LINES_MAX = 30
"""Of one event's history."""

Trace = Callable[[str], Sequence[str]]
"""Asks a gateway what it knows of a fingerprint."""


def with_histories(verdict: Verdict, casebook: Casebook, ledger_file: Path, trace: Trace) -> Verdict:
    """Give each violation its history; one pass over the ledger finds all of them."""
    wanted = {mark for violation in verdict.violations for mark in violation.marks}
    told: dict[int, list[str]] = defaultdict(list)
    if wanted:
        for line in ledger.read(ledger_file):
            if isinstance(line, Told | Sent | Acked | Refused | GivenUp) and line.mark in wanted:
                told[line.mark].append(f"{rfc3339(line.at)} {_described(line)}")
    return replace(verdict, violations=tuple(_with_history(one, casebook, told, trace) for one in verdict.violations))


def _with_history(violation: Violation, casebook: Casebook, told: dict[int, list[str]], trace: Trace) -> Violation:
    lines = [line for mark in violation.marks for line in told[mark]]
    fingerprints: set[str] = set()
    for statement in _statements(violation, casebook):
        lines += _records(casebook, statement)
        for line, fingerprint in _rows(casebook, statement):
            lines.append(line)
            fingerprints.update([fingerprint] if fingerprint else [])
    for fingerprint in sorted(fingerprints):
        lines += [f"trace {fingerprint}: {line}" for line in trace(fingerprint)]
    more = [f"… {len(lines) - LINES_MAX} lines more"] if len(lines) > LINES_MAX else []
    return replace(violation, history=(*lines[:LINES_MAX], *more))


def _statements(violation: Violation, casebook: Casebook) -> list[bytes]:
    marks = ", ".join(map(str, violation.marks)) or "NULL"
    own = f"SELECT statement FROM event WHERE mark IN ({marks})"
    restamped = f"SELECT statement FROM variant WHERE mark IN ({marks})"
    return [statement for (statement,) in casebook.database.execute(f"{own} UNION {restamped}")]


def _records(casebook: Casebook, statement: bytes) -> list[str]:
    query = 'SELECT at, partition, "offset", epoch, sequence FROM record WHERE statement = ? ORDER BY at'
    return [
        f"{rfc3339(at)} in Kafka: partition {partition}, offset {offset}, epoch {epoch}, sequence {sequence}"
        for at, partition, offset, epoch, sequence in casebook.database.execute(query, (statement,))
    ]


def _rows(casebook: Casebook, statement: bytes) -> list[tuple[str, str | None]]:
    query = 'SELECT at, partition, "offset", epoch, sequence, fingerprint FROM row WHERE statement = ? ORDER BY at'
    found = []
    for at, partition, offset, epoch, sequence, fingerprint in casebook.database.execute(query, (statement,)):
        when = "" if at is None else f"{rfc3339(at)} "
        source = f"partition {partition}, offset {offset}, epoch {epoch}, sequence {sequence}"
        found.append((f"{when}in the table: from {source}, fingerprint {fingerprint}", fingerprint))
    return found


def _described(line: Line) -> str:
    match line:
        case Told():
            return "told: the sensor had it to report"
        case Sent(again=True):
            return "sent again, byte for byte"
        case Sent(time=int(time)):
            return f"sent in a new request, stamped with time {time}"
        case Sent():
            return "sent in a new request"
        case Acked():
            return "acked"
        case Refused(code=code):
            return f"refused with {code}"
    return "given up"
