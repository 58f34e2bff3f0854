"""The judgement: every check, held together in one verdict."""

from __future__ import annotations

from simulators.oracle import contents, labels, moments, order
from simulators.oracle.evidence_database import Casebook
from simulators.oracle.findings import Findings, Scope
from simulators.oracle.tallies import prepare, unknown
from simulators.oracle.verdict import Verdict

CHECKS = (contents.check, labels.check, order.check, moments.check)


def judge(casebook: Casebook, scope: Scope | None = None) -> Verdict:
    """Judge a casebook that has been filled; by default a whole run of one gateway with a table."""
    scope = scope or Scope()
    findings = Findings()
    if scope.has_table:
        prepare(casebook, scope)
        for check in CHECKS:
            check(casebook, scope, findings)
    records = casebook.count("SELECT count(*) FROM record")
    labels_of_records = casebook.count("SELECT count(*) FROM (SELECT DISTINCT epoch, sequence FROM record)")
    return Verdict(
        events=casebook.count("SELECT count(*) FROM event"),
        acked=casebook.acked,
        refused=casebook.refused,
        given_up=casebook.given_up,
        transmissions=casebook.count("SELECT sum(transmissions) FROM event"),
        rows=casebook.count("SELECT count(*) FROM row") if scope.has_table else None,
        records=records if casebook.has_records else None,
        repeats=records - labels_of_records,
        **findings.counts,
        premature=casebook.premature,
        unacked=casebook.unacked if scope.complete else 0,
        declared={limit: count for limit, count in findings.declared.items() if count},
        violations=tuple(findings.examples),
        complete=scope.complete,
        settled=scope.settled,
        cut=casebook.cut,
        unknown=unknown(casebook) if scope.has_table else 0,
    )
