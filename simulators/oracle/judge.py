"""The judgement: which statements have the rows that they must have.

A statement with an id or a time is one event and one row, however often it was said. One with neither cannot be told
from its twin, by nobody: there the number of rows must be the number of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace

from simulators.oracle.casebook import Casebook
from simulators.oracle.statement import name, words
from simulators.oracle.verdict import Verdict, Violation

EXAMPLES_MAX = 20
"""Of each sort of violation."""

_SAID = """
    CREATE TABLE said (statement BLOB PRIMARY KEY, neither, marks, sent, acked, requests, across, mark) WITHOUT ROWID;
    INSERT INTO said SELECT statement, max(neither), count(*), sum(requests > 0), sum(ended = 'Acked'), sum(requests),
        sum(across), min(mark) FROM event GROUP BY statement;
    CREATE TABLE found (statement BLOB PRIMARY KEY, rows) WITHOUT ROWID;
    INSERT INTO found SELECT statement, count(*) FROM row GROUP BY statement;
    CREATE INDEX variants ON variant (statement);
    CREATE INDEX variant_marks ON variant (mark);
"""
_KNOWN = """
    SELECT marks, sent, ifnull(acked, 0), ifnull(rows, 0), mark FROM said s LEFT JOIN found USING (statement)
    WHERE NOT neither AND (marks > 1 OR rows > 1 OR (acked > 0 AND rows IS NULL) OR (sent = 0 AND rows > 0))
"""
_NEITHER = """
    SELECT sent, ifnull(acked, 0), requests, across, ifnull(rows, 0), mark
    FROM said s LEFT JOIN found USING (statement)
    WHERE neither AND (ifnull(rows, 0) < acked OR ifnull(rows, 0) > sent)
"""
_UNTOLD = """
    SELECT min(said), count(*) FROM row WHERE statement NOT IN (SELECT statement FROM said)
    AND statement NOT IN (SELECT statement FROM variant) GROUP BY statement
"""
_RESTAMPED = """
    SELECT mark, ended = 'Acked', (SELECT sum(rows) FROM found WHERE statement IN
        (SELECT e.statement UNION SELECT v.statement FROM variant v WHERE v.mark = e.mark))
    FROM event e WHERE mark IN (SELECT mark FROM variant)
"""
_ORDER = """
    SELECT r.epoch, r.device, e.mark, e.first_line, e.acked_line FROM row r JOIN said s USING (statement)
    JOIN event e ON e.mark = s.mark WHERE s.marks = 1 AND r.epoch IS NOT NULL
    ORDER BY r.epoch, r.device, r.sequence DESC
"""
_RECORD_ORDER = """
    SELECT epoch, device, partition, min("offset") FROM record GROUP BY epoch, device, partition, sequence
    ORDER BY epoch, device, partition, sequence
"""


_TWO_EVENTS = """
    SELECT epoch, sequence, count(DISTINCT statement) FROM record GROUP BY epoch, sequence
    HAVING min(statement) != max(statement)
"""
_TWO_LABELS = """
    SELECT s.mark, count(DISTINCT r.epoch || r.sequence) FROM record r JOIN said s USING (statement) WHERE NOT s.neither
    GROUP BY statement HAVING min(r.epoch || r.sequence) != max(r.epoch || r.sequence)
"""


@dataclass(slots=True)
class _Findings:
    """What is counted while the statements are gone through."""

    counts: Counter[str] = field(default_factory=Counter)
    declared: Counter[str] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    missing: dict[bytes, Violation] = field(default_factory=dict)
    """Lost events by what names them: a row with other data may be theirs."""

    def add(self, violation: Violation, number: int = 1) -> None:
        self.counts[violation.what] += number
        if sum(example.what == violation.what for example in self.examples) < EXAMPLES_MAX:
            self.examples.append(violation)

    def take_back(self, violation: Violation) -> None:
        self.counts[violation.what] -= 1
        if violation in self.examples:
            self.examples.remove(violation)


def judge(casebook: Casebook, *, has_table: bool = True, gateways: int = 1, complete: bool = True) -> Verdict:
    """Count what was lost, doubled, invented, changed or out of order; an interrupted run can have lost nothing yet."""
    casebook.database.executescript(_SAID)
    findings = _Findings()
    if has_table:
        _judge_known(casebook, findings)
        _judge_neither(casebook, findings, gateways)
        _judge_restamped(casebook, findings)
        _judge_untold(casebook, findings)
        if gateways == 1:
            # Of two gateways that hear one sensor, the one whose ack was lost may count its events later.
            _judge_order(casebook, findings)
        _judge_record_order(casebook, findings)
        _judge_labels(casebook, findings, gateways)
    counts = {**findings.counts, "premature": casebook.premature}
    if not complete:
        counts["lost"] = 0
    records = casebook.count("SELECT count(*) FROM record")
    return Verdict(
        events=casebook.count("SELECT count(*) FROM event"),
        acked=casebook.acked,
        refused=casebook.refused,
        given_up=casebook.given_up,
        transmissions=casebook.count("SELECT sum(transmissions) FROM event"),
        rows=casebook.count("SELECT count(*) FROM row") if has_table else None,
        records=records or None,
        repeats=casebook.repeats + records - _labels(casebook),
        **counts,
        declared={limit: count for limit, count in findings.declared.items() if count},
        violations=tuple(one for one in findings.examples if complete or one.what != "lost"),
        complete=complete,
    )


def _judge_known(casebook: Casebook, findings: _Findings) -> None:
    for marks, sent, acked, rows, mark in casebook.database.execute(_KNOWN).fetchall():
        if marks > 1 and sent > 1:
            findings.declared["equal-events"] += sent - 1
        violation = Violation("", _words_of(casebook, mark), sent, acked, rows, (mark,))
        if acked and not rows:
            _lose(casebook, findings, replace(violation, what="lost"), mark)
        elif rows > min(sent, 1):
            findings.add(replace(violation, what="doubled"), rows - min(sent, 1))


def _lose(casebook: Casebook, findings: _Findings, violation: Violation, mark: int) -> None:
    if casebook.count(f"SELECT count(*) FROM variant WHERE mark = {mark}"):
        return  # its resends were other statements: judged with them
    findings.add(violation)
    (said,) = casebook.database.execute("SELECT said FROM event WHERE mark = ?", (mark,)).fetchone()
    if (named := name(said)) is not None:
        findings.missing[named] = violation


def _judge_neither(casebook: Casebook, findings: _Findings, gateways: int) -> None:
    for sent, acked, requests, across, rows, mark in casebook.database.execute(_NEITHER).fetchall():
        violation = Violation("", _words_of(casebook, mark), sent, acked, rows, (mark,))
        if rows < acked:
            findings.add(replace(violation, what="lost"), acked - rows)
            continue
        excess = rows - sent
        limits = (
            ("resent-without-proof", requests - sent),
            ("heard-twice-without-id", sent * (gateways - 1)),
            ("across-a-restored-card", across),
        )
        for limit, room in limits:
            covered = min(excess, room)
            findings.declared[limit] += covered
            excess -= covered
        if excess:
            findings.add(replace(violation, what="doubled"), excess)


def _judge_restamped(casebook: Casebook, findings: _Findings) -> None:
    for mark, acked, rows in casebook.database.execute(_RESTAMPED).fetchall():
        if acked and not rows:
            findings.add(Violation("lost", _words_of(casebook, mark), 1, 1, 0, (mark,)))
        elif rows and rows > 1:
            findings.declared["restamped-resends"] += rows - 1
    doubled = "SELECT min(v.mark), rows FROM found JOIN variant v USING (statement) WHERE rows > 1 GROUP BY v.statement"
    for mark, rows in casebook.database.execute(doubled).fetchall():
        findings.declared["restamped-resends"] -= rows - 1
        findings.add(Violation("doubled", _words_of(casebook, mark), 1, 1, rows, (mark,)), rows - 1)


def _judge_untold(casebook: Casebook, findings: _Findings) -> None:
    """Judge rows that nobody has said so: changed where an event of that name was told, invented else."""
    untold = casebook.database.execute(_UNTOLD).fetchall()
    if not untold:
        return
    marks = _marks_by_name(casebook, {named for said, _ in untold if (named := name(said)) is not None})
    for said, rows in untold:
        named = name(said)
        mark = marks.get(named) if named is not None else None
        if mark is None:
            findings.add(Violation("invented", words(said), 0, 0, rows), rows)
            continue
        findings.add(Violation("changed", words(said), 1, 1, rows, (mark,)), rows)
        if named in findings.missing:
            findings.take_back(findings.missing.pop(named))


def _marks_by_name(casebook: Casebook, wanted: Set[bytes]) -> dict[bytes, int]:
    """Find the events that bear these names, in one pass."""
    marks: dict[bytes, int] = {}
    for mark, said in casebook.database.execute("SELECT mark, said FROM event WHERE NOT neither"):
        if (named := name(said)) in wanted and named is not None:
            marks[named] = mark
    return marks


def _judge_order(casebook: Casebook, findings: _Findings) -> None:
    """Judge the gateway's own count: what was acked before another was first sent must have the lower sequence."""
    place: tuple[str, str] | None = None
    acked_first, acked_mark = 0, 0
    for epoch, device, mark, first_line, acked_line in casebook.database.execute(_ORDER):
        if (epoch, device) != place:
            place, acked_first, acked_mark = (epoch, device), 0, 0
        if acked_first and first_line is not None and acked_first < first_line:
            said = _words_of(casebook, mark)
            findings.add(Violation("disordered", f"{said} before a later one", 1, 1, 1, (mark, acked_mark)))
        if acked_line is not None and (not acked_first or acked_line < acked_first):
            acked_first, acked_mark = acked_line, mark


def _judge_record_order(casebook: Casebook, findings: _Findings) -> None:
    """Judge the topic: of one device and epoch, first copies must lie in the order of their sequences."""
    place: tuple[str, str, int] | None = None
    highest = -1
    for epoch, device, partition, offset in casebook.database.execute(_RECORD_ORDER):
        if (epoch, device, partition) != place:
            place, highest = (epoch, device, partition), -1
        if offset < highest:
            at = f"{device} in epoch {epoch}: partition {partition}, offset {offset} after {highest}"
            findings.add(Violation("disordered", at, 0, 0, 1))
        highest = max(highest, offset)


def _judge_labels(casebook: Casebook, findings: _Findings, gateways: int) -> None:
    """Judge the gateway's labels: one event each, and one for each event that can be recognised."""
    for epoch, sequence, events in casebook.database.execute(_TWO_EVENTS).fetchall():
        findings.add(Violation("mislabelled", f"epoch {epoch}, sequence {sequence}: {events} events", 0, 0, events))
    if gateways > 1 or casebook.restores:
        return  # another gateway, or an older copy of the store, cannot know of the first label
    for mark, labels in casebook.database.execute(_TWO_LABELS).fetchall():
        findings.add(Violation("mislabelled", _words_of(casebook, mark), 1, 1, labels, (mark,)))


def _words_of(casebook: Casebook, mark: int) -> str:
    (said,) = casebook.database.execute("SELECT said FROM event WHERE mark = ?", (mark,)).fetchone()
    return words(said)


def _labels(casebook: Casebook) -> int:
    return casebook.count("SELECT count(*) FROM (SELECT DISTINCT epoch, sequence FROM record)")
