"""The verdict from all checks."""

from simulators.oracle import contents, labels, order
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.tallies import prepare, unknown
from simulators.oracle.verdict import Findings, Scope, Verdict

CHECKS = (contents.check, labels.check, order.check, labels.check_times)


def judge(evidence: EvidenceDatabase, scope: Scope | None = None) -> Verdict:
    """Return the verdict on complete evidence; by default for a finished run of one gateway with a table."""
    scope = scope or Scope()
    findings = Findings()
    if scope.has_table:
        prepare(evidence, scope)
        for check in CHECKS:
            check(evidence, scope, findings)
    records = evidence.count("SELECT count(*) FROM record")
    labels_of_records = evidence.count("SELECT count(*) FROM (SELECT DISTINCT epoch, sequence FROM record)")
    return Verdict(
        events=evidence.count("SELECT count(*) FROM event"),
        acked=evidence.acked,
        refused=evidence.refused,
        given_up=evidence.given_up,
        transmissions=evidence.count("SELECT sum(transmissions) FROM event"),
        rows=evidence.count("SELECT count(*) FROM row") if scope.has_table else None,
        records=records if evidence.has_records else None,
        repeats=records - labels_of_records,
        **findings.counts,
        premature=evidence.premature,
        unacked=evidence.unacked if scope.complete else 0,
        declared={limit: count for limit, count in findings.declared.items() if count},
        violations=tuple(findings.examples),
        complete=scope.complete,
        arriving=scope.arriving,
        cut=evidence.cut,
        unknown=unknown(evidence) if scope.has_table else 0,
        of_topic=scope.of_topic,
    )
