"""Check of labels: each identifies one event, each known event has one, and each row matches its record."""

from collections import defaultdict

from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.statement import readable
from simulators.oracle.verdict import Findings, Scope, Violation

_ROWS_OF_ONE_LABEL = """
    SELECT again.rows, min(row.content), ifnull(sent, 0), ifnull(acked, 0), mark
    FROM again JOIN row USING (epoch, sequence) LEFT JOIN stated USING (statement) GROUP BY epoch, sequence
"""
_TWO_EVENTS = """
    SELECT epoch, sequence, count(*), group_concat(mark) FROM label LEFT JOIN stated USING (statement)
    WHERE (epoch, sequence) IN (SELECT epoch, sequence FROM label GROUP BY epoch, sequence HAVING count(*) > 1)
    GROUP BY epoch, sequence
"""
_TWO_LABELS = """
    SELECT statement, mark, sent_forms, across FROM label JOIN stated USING (statement) WHERE NOT neither
    GROUP BY statement HAVING count(*) > 1
"""
_LABELS_OF = "SELECT gateway, epoch FROM label WHERE statement = ?"
_WITHOUT_LABEL = """
    SELECT row.content, mark FROM row LEFT JOIN stated USING (statement) WHERE epoch IS NULL OR sequence IS NULL
"""
# Rows without a statement are covered by the check of contents.
_NOT_THE_RECORD = """
    SELECT r.content, r.epoch, r.sequence, r.partition, r."offset", c.rowid IS NULL,
        EXISTS (SELECT 1 FROM label WHERE label.epoch = r.epoch AND label.sequence = r.sequence),
        (SELECT mark FROM stated WHERE stated.statement = r.statement)
    FROM row r LEFT JOIN record c ON c.partition = r.partition AND c."offset" = r."offset"
    WHERE (r.epoch IS NOT c.epoch OR r.sequence IS NOT c.sequence OR r.fingerprint IS NOT c.fingerprint
        OR r.gateway IS NOT c.gateway OR r.statement IS NOT c.statement)
    AND (r.statement IN (SELECT statement FROM stated) OR r.statement IN (SELECT statement FROM variant))
"""
_DECLARED_AND_THERE = """
    SELECT epoch, sequence FROM label JOIN gap USING (epoch) WHERE sequence BETWEEN first AND last
"""


def check(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare labels with one another, and rows with records where the topic was read."""
    execute = evidence.connection.execute
    for rows, content, sent, acked, mark in execute(_ROWS_OF_ONE_LABEL).fetchall():
        findings.add(Violation("doubled", readable(content), sent, acked, rows, _marks(mark)), rows - 1)
    for epoch, sequence, events, marks in execute(_TWO_EVENTS).fetchall():
        subject = f"{_label(epoch, sequence)}: {events} events"
        findings.add(Violation("mislabelled", subject, 0, 0, events, _marks(marks)))
    if not evidence.has_records:
        for content, mark in execute(_WITHOUT_LABEL).fetchall():
            findings.add(Violation("mislabelled", f"{readable(content)}: a row without a label", 0, 0, 1, _marks(mark)))
        return
    _check_labels_of_one_event(evidence, scope, findings)
    _check_rows(evidence, findings)
    for epoch, sequence in execute(_DECLARED_AND_THERE).fetchall():
        findings.add(Violation("misdeclared", f"{_label(epoch, sequence)}: declared as given up", 0, 0, 1))


def _check_labels_of_one_event(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Check events with several labels: a gateway must recognise the events that it has labelled.

    Exceptions are a restored older store, which labels an event that was in transmission again in another epoch, and
    another gateway (decision 25).
    """
    for statement, mark, forms, across in evidence.connection.execute(_TWO_LABELS).fetchall():
        epochs: dict[str | None, list[str]] = defaultdict(list)
        for gateway, epoch in evidence.connection.execute(_LABELS_OF, (statement,)):
            epochs[gateway].append(epoch)
        events = max(1, forms.bit_count())
        for gateway, of in epochs.items():
            gateways = scope.gateways if gateway is None else 1
            forgotten = across * gateways if len(set(of)) == len(of) else 0
            others = (gateways - 1) * events if len(set(of)) > 1 else 0
            if len(of) > events + others + forgotten:
                subject = f"{readable(evidence.content(mark))}: {len(of)} labels"
                findings.add(Violation("mislabelled", subject, 1, 1, len(of), (mark,)))


def _check_rows(evidence: EvidenceDatabase, findings: Findings) -> None:
    rows = evidence.connection.execute(_NOT_THE_RECORD).fetchall()
    for content, epoch, sequence, partition, offset, is_nowhere, is_label, mark in rows:
        place = f"{readable(content)}: partition {partition}, offset {offset}"
        if is_nowhere and not is_label:
            findings.add(Violation("invented", f"{place}: never in the topic", 0, 0, 1, _marks(mark)))
            continue
        other = "there is no such record" if is_nowhere else "the record there differs"
        claim = f"{place}, {_label(epoch, sequence)}: {other}"
        findings.add(Violation("mislabelled", claim, 0, 0, 1, _marks(mark)))


def _marks(listed: int | str | None) -> tuple[int, ...]:
    """Return one mark, or several that SQLite has joined by commas; none without a statement."""
    return () if listed is None else tuple(map(int, str(listed).split(",")))


def _label(epoch: str | None, sequence: int | None) -> str:
    return f"epoch {epoch}, sequence {sequence}"


STEP_MILLISECONDS_MAX = 1_000
"""Tolerated backward step of the machine's clock during a run."""
_BEFORE_IT_WAS_SENT = f"""
    SELECT s.mark FROM label l JOIN stated s USING (statement)
    WHERE l.at < s.first_at - {STEP_MILLISECONDS_MAX} AND l.statement NOT IN (SELECT statement FROM variant)
"""
_BEFORE_ITS_RECORD = f"""
    SELECT r.content FROM row r JOIN record c ON c.partition = r.partition AND c."offset" = r."offset"
    WHERE r.at < c.at - {STEP_MILLISECONDS_MAX}
"""


def check_times(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare timestamps, where one clock made all of them."""
    if not scope.one_clock:
        return
    for (mark,) in evidence.connection.execute(_BEFORE_IT_WAS_SENT).fetchall():
        subject = f"{readable(evidence.content(mark))}: in Kafka before it was sent"
        findings.add(Violation("invented", subject, 1, 0, 1, (mark,)))
    for (content,) in evidence.connection.execute(_BEFORE_ITS_RECORD).fetchall():
        findings.add(Violation("invented", f"{readable(content)}: processed before it was in Kafka", 0, 0, 1))
