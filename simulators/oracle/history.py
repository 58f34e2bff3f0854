"""The history of each violation: the ledger's lines, the records and the rows."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contract.timestamp import rfc3339
from simulators import ledger
from simulators.ledger import Acked, GivenUp, Line, Refused, Reported, Sent
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.verdict import Verdict, Violation

LINES_MAX = 30
"""Largest number of lines in a history."""


def with_histories(verdict: Verdict, evidence: EvidenceDatabase, ledger_file: Path) -> Verdict:
    """Return the verdict with the history of each violation, collected in one pass over the ledger."""
    wanted = {mark for violation in verdict.violations for mark in violation.marks}
    reported: dict[int, list[str]] = defaultdict(list)
    for line in ledger.read(ledger_file) if wanted else ():
        if isinstance(line, Reported | Sent | Acked | Refused | GivenUp) and line.mark in wanted:
            reported[line.mark].append(f"{rfc3339(line.at)} {_described(line)}")
    violations = []
    for violation in verdict.violations:
        lines = [line for mark in violation.marks for line in reported[mark]]
        for statement in _statements(violation, evidence):
            lines += [*_records(evidence, statement), *_rows(evidence, statement)]
        violations.append(replace(violation, history=_bounded(lines)))
    return replace(verdict, violations=tuple(violations))


def _bounded(lines: Sequence[str]) -> tuple[str, ...]:
    more = [f"… {len(lines) - LINES_MAX} lines more"] if len(lines) > LINES_MAX else []
    return (*lines[:LINES_MAX], *more)


def _statements(violation: Violation, evidence: EvidenceDatabase) -> list[bytes]:
    marks = ", ".join(map(str, violation.marks)) or "NULL"
    own = f"SELECT statement FROM event WHERE mark IN ({marks})"
    restamped = f"SELECT statement FROM variant WHERE mark IN ({marks})"
    return [statement for (statement,) in evidence.connection.execute(f"{own} UNION {restamped}")]


def _records(evidence: EvidenceDatabase, statement: bytes) -> list[str]:
    query = 'SELECT at, partition, "offset", epoch, sequence FROM record WHERE statement = ? ORDER BY at'
    return [
        f"{rfc3339(at)} in Kafka: partition {partition}, offset {offset}, epoch {epoch}, sequence {sequence}"
        for at, partition, offset, epoch, sequence in evidence.connection.execute(query, (statement,))
    ]


def _rows(evidence: EvidenceDatabase, statement: bytes) -> list[str]:
    query = 'SELECT at, partition, "offset", epoch, sequence, fingerprint FROM row WHERE statement = ? ORDER BY at'
    found = []
    for at, partition, offset, epoch, sequence, fingerprint in evidence.connection.execute(query, (statement,)):
        when = "" if at is None else f"{rfc3339(at)} "
        source = f"partition {partition}, offset {offset}, epoch {epoch}, sequence {sequence}"
        found.append(f"{when}in the table: from {source}, fingerprint {fingerprint}")
    return found


def _described(line: Line) -> str:
    match line:
        case Reported():
            return "reported: the sensor had it to report"
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
