"""Check of timestamps: nothing is in Kafka before it was sent, and nothing in the table before it was in Kafka."""

from __future__ import annotations

from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.findings import Findings, Scope
from simulators.oracle.statement import readable
from simulators.oracle.verdict import Violation

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


def check(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare timestamps, where one clock made all of them."""
    if not scope.one_clock:
        return
    for (mark,) in evidence.connection.execute(_BEFORE_IT_WAS_SENT).fetchall():
        subject = f"{readable(evidence.content(mark))}: in Kafka before it was sent"
        findings.add(Violation("invented", subject, 1, 0, 1, (mark,)))
    for (content,) in evidence.connection.execute(_BEFORE_ITS_RECORD).fetchall():
        findings.add(Violation("invented", f"{readable(content)}: processed before it was in Kafka", 0, 0, 1))
