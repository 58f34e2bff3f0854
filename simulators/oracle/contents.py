"""Check of contents: statements without the rows that they must have, and rows that no sensor has sent.

A statement with an id or a time is one event and one row, however often it was reported. Equal statements with neither
are indistinguishable: for these the number of rows must equal the number of events.
"""

from collections.abc import Sequence, Set
from dataclasses import replace

from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.statement import name, readable
from simulators.oracle.tallies import must
from simulators.oracle.verdict import Findings, Scope, Violation

_KNOWN = """
    SELECT marks, sent, acked, due_forms, sent_forms, ifnull(rows, 0), mark, statement
    FROM stated LEFT JOIN found USING (statement)
    WHERE NOT neither AND (marks > 1 OR ifnull(rows, 0) > (sent > 0) OR ifnull(rows, 0) < (due > 0))
"""
_NEITHER = """
    SELECT sent, acked, due, requests, across, ifnull(rows, 0), mark, statement
    FROM stated LEFT JOIN found USING (statement)
    WHERE neither AND (ifnull(rows, 0) < due OR ifnull(rows, 0) > sent)
"""
_BY_GATEWAY = """
    SELECT count(*) FROM row WHERE statement = ? AND gateway IS NOT NULL AND NOT repeated GROUP BY gateway
"""
_UNKNOWN_ROWS = """
    SELECT min(content), count(*) FROM row WHERE statement NOT IN (SELECT statement FROM stated)
    AND statement NOT IN (SELECT statement FROM variant) GROUP BY statement
"""
# A record that also has a row was already counted there.
_UNKNOWN_RECORDS = """
    SELECT min(r.content), count(DISTINCT r.epoch || r.sequence) FROM record r LEFT JOIN stated s USING (statement)
    WHERE (ifnull(s.forms, 0) >> r.form) & 1 = 0
    AND NOT EXISTS (SELECT 1 FROM variant v WHERE v.statement = r.statement AND v.form = r.form)
    AND (s.forms IS NOT NULL OR r.statement NOT IN (SELECT statement FROM found)) GROUP BY r.statement, r.form
"""
_RESTAMPED = """
    SELECT mark, {must}, (SELECT sum(rows) FROM found WHERE statement IN
        (SELECT event.statement UNION SELECT v.statement FROM variant v WHERE v.mark = event.mark))
    FROM event WHERE mark IN (SELECT mark FROM variant)
"""
_RESTAMPED_TWICE = """
    SELECT min(v.mark), rows FROM found JOIN variant v USING (statement)
    WHERE rows > 1 AND v.statement NOT IN (SELECT statement FROM stated) GROUP BY v.statement
"""
_RESTAMPED_AS_ANOTHER = "SELECT count(DISTINCT statement) FROM variant JOIN stated USING (statement)"


def check(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare statements with rows, and records with statements."""
    missing = _check_known(evidence, findings)
    _check_neither(evidence, scope, findings)
    _check_restamped(evidence, scope, findings)
    _check_unknown(evidence, findings, _UNKNOWN_ROWS, missing)
    if evidence.has_records:
        _check_unknown(evidence, findings, _UNKNOWN_RECORDS, missing)


def _check_known(evidence: EvidenceDatabase, findings: Findings) -> dict[bytes, Violation]:
    """Check statements with an id or a time, and return the missing ones by name."""
    missing: dict[bytes, Violation] = {}
    for marks, sent, acked, due_forms, sent_forms, rows, mark, statement in evidence.connection.execute(
        _KNOWN
    ).fetchall():
        content = evidence.content(mark)
        violation = Violation("lost", readable(content), sent, acked, rows, (mark,))
        due, allowed = due_forms.bit_count(), sent_forms.bit_count()
        if marks > 1 and sent > allowed:
            findings.declared["equal-events"] += sent - allowed
        if rows < due:
            findings.add(violation, due - rows)
            if (named := name(content)) is not None and due == 1:
                missing[named] = violation
        elif rows > allowed and not evidence.has_variant(statement):
            _add_surplus(findings, violation, rows - allowed)
        elif rows > max(allowed, 1):
            findings.add(replace(violation, what="doubled"), rows - max(allowed, 1))
    return missing


def _add_surplus(findings: Findings, violation: Violation, count: int) -> None:
    """Count surplus rows: as doubled, or as invented where no request can have caused them."""
    findings.add(replace(violation, what="doubled" if violation.sent else "invented"), count)


def _check_neither(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    for sent, acked, due, requests, across, rows, mark, statement in evidence.connection.execute(_NEITHER).fetchall():
        violation = Violation("lost", readable(evidence.content(mark)), sent, acked, rows, (mark,))
        if rows < due:
            findings.add(violation, due - rows)
            continue
        by_gateway = [count for (count,) in evidence.connection.execute(_BY_GATEWAY, (statement,))]
        if len(by_gateway) < scope.gateways and sum(by_gateway) < rows:
            by_gateway = _spread(rows, scope.gateways)
        rest = rows - sent
        for limit, most in _surplus_max(by_gateway, sent, requests if sent else 0, across if sent else 0).items():
            covered = min(rest, most)
            findings.declared[limit] += covered
            rest -= covered
        if rest:
            _add_surplus(findings, violation, rest)


def _surplus_max(by_gateway: Sequence[int], sent: int, requests: int, across: int) -> dict[str, int]:
    """Return how many surplus rows each declared limit can explain, summed over the gateways."""
    beyond = [max(0, rows - sent) for rows in by_gateway]
    anew = [min(rows, requests - sent) for rows in beyond]
    return {
        "received-twice-without-id": max(0, sum(min(rows, sent) for rows in by_gateway) - sent),
        "resent-without-proof": sum(anew),
        "across-a-restored-card": sum(min(rows - taken, across) for rows, taken in zip(beyond, anew, strict=True)),
    }


def _spread(rows: int, gateways: int) -> list[int]:
    """Distribute rows without a gateway evenly, so that the declared limits explain most of them."""
    return [rows // gateways + (number < rows % gateways) for number in range(gateways)]


def _check_restamped(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    execute = evidence.connection.execute
    for mark, due, rows in execute(_RESTAMPED.format(must=must(evidence, scope))).fetchall():
        if due and not rows:
            findings.add(Violation("lost", readable(evidence.content(mark)), 1, 1, 0, (mark,)))
        elif rows and rows > 1:
            findings.declared["restamped-resends"] += rows - 1
    for mark, rows in execute(_RESTAMPED_TWICE).fetchall():
        findings.declared["restamped-resends"] -= rows - 1
        findings.add(Violation("doubled", readable(evidence.content(mark)), 1, 1, rows, (mark,)), rows - 1)
    findings.declared["equal-events"] += evidence.count(_RESTAMPED_AS_ANOTHER)


def _check_unknown(evidence: EvidenceDatabase, findings: Findings, query: str, missing: dict[bytes, Violation]) -> None:
    """Check rows or records that match no statement: changed where the event's name is known, else invented."""
    unknown = evidence.connection.execute(query).fetchall()
    if not unknown:
        return
    marks = _marks_by_name(evidence, {named for content, _ in unknown if (named := name(content)) is not None})
    for content, rows in unknown:
        named = name(content)
        mark = marks.get(named) if named is not None else None
        if mark is None:
            findings.add(Violation("invented", readable(content), 0, 0, rows), rows)
            continue
        findings.add(Violation("changed", readable(content), 1, 1, rows, (mark,)), rows)
        if named in missing:
            findings.take_back(missing.pop(named))


def _marks_by_name(evidence: EvidenceDatabase, wanted: Set[bytes]) -> dict[bytes, int]:
    """Return the marks of the events with these names, in one pass."""
    marks: dict[bytes, int] = {}
    for mark, content in evidence.connection.execute("SELECT mark, content FROM event WHERE NOT neither"):
        if (named := name(content)) in wanted and named is not None:
            marks[named] = mark
    return marks
