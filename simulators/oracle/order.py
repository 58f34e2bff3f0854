"""Check of order: the events of a device keep their order in the gateway's sequence and in the topic.

The order is that of the ledger's lines: an event that was acked before another was first sent precedes it. Where two
gateways receive from one device, the gateway whose ACK was not needed may store an event late: there an event is
compared with the later ones only where no other gateway has it.
"""

from dataclasses import dataclass

from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.statement import readable
from simulators.oracle.verdict import Findings, Scope, Violation

# Statements of one event; a second request of one with neither id nor time may be labelled after the ACK.
_ONE_EVENT = "s.marks = 1 AND (NOT s.neither OR s.requests <= 1)"
_RECEIVED_BY_ONE = "1 = (SELECT count(DISTINCT ifnull(gateway, epoch)) FROM label o WHERE o.statement = l.statement)"
# Where first records are deleted, a remaining record may be a repeat.
_WHOLE = "l.partition NOT IN (SELECT partition FROM cut)"
_BY_SEQUENCE = f"""
    SELECT l.epoch, l.device, e.mark, e.first_line, e.acked_line, {{alone}}
    FROM label l JOIN stated s USING (statement) JOIN event e ON e.mark = s.mark
    WHERE {_ONE_EVENT} ORDER BY l.epoch, l.device, l.sequence DESC
"""
_BY_OFFSET = f"""
    SELECT ifnull(l.gateway, {{unknown}}), l.device, l.partition, l.epoch, e.mark, e.first_line, e.acked_line,
        1 = (SELECT count(*) FROM label o WHERE o.statement = l.statement)
    FROM label l JOIN stated s USING (statement) JOIN event e ON e.mark = s.mark
    WHERE {_ONE_EVENT} AND {_WHOLE} ORDER BY 1, 2, 3, l."offset" DESC
"""
_OFFSETS = f"""
    SELECT l.epoch, l.device, l.partition, l."offset" FROM label l WHERE {_WHOLE}
    ORDER BY l.epoch, l.device, l.partition, l.sequence
"""
_PARTITIONS = """
    SELECT device, group_concat(DISTINCT partition) FROM label GROUP BY device HAVING min(partition) != max(partition)
"""


def check(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare sequences with the ledger and, where the topic was read, offsets with sequences and the ledger."""
    _check_sequences(evidence, scope, findings)
    for device, partitions in evidence.connection.execute(_PARTITIONS).fetchall():
        findings.add(Violation("disordered", f"{device}: in the partitions {partitions}", 0, 0, 1))
    if evidence.has_records:
        # A row may come from a repeat of its record: only the topic has the first offsets.
        _check_offsets(evidence, findings)
        _check_epochs(evidence, scope, findings)


@dataclass(slots=True)
class _Acked:
    """The event that was acked first among those with a higher position."""

    line: int | None = None
    mark: int = 0

    def precedes(self, first_line: int | None) -> bool:
        return self.line is not None and first_line is not None and self.line < first_line

    def add(self, line: int | None, mark: int) -> None:
        if line is not None and (self.line is None or line < self.line):
            self.line, self.mark = line, mark


def _check_sequences(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Check a device's labels in an epoch, from the last to the first."""
    alone = "1" if scope.gateways == 1 else _RECEIVED_BY_ONE if evidence.has_records and scope.settled else "0"
    place: tuple[str, str] | None = None
    acked = _Acked()
    for epoch, device, mark, first_line, acked_line, is_alone in evidence.connection.execute(
        _BY_SEQUENCE.format(alone=alone)
    ):
        if (epoch, device) != place:
            place, acked = (epoch, device), _Acked()
        if acked.precedes(first_line):
            findings.add(_disordered(evidence, mark, acked.mark))
        if is_alone:
            acked.add(acked_line, mark)


def _check_epochs(evidence: EvidenceDatabase, scope: Scope, findings: Findings) -> None:
    """Compare a device's records across the epochs of one gateway, from the last to the first.

    Within an epoch the ledger was compared with the sequences, and these with the offsets.
    """
    place: tuple[str, str, int] | None = None
    acked: dict[str, _Acked] = {}
    unknown = "''" if scope.gateways == 1 else "l.epoch"
    for gateway, device, partition, epoch, mark, first_line, acked_line, has_one_label in evidence.connection.execute(
        _BY_OFFSET.format(unknown=unknown)
    ):
        if (gateway, device, partition) != place:
            place, acked = (gateway, device, partition), {}
        for other, later in acked.items():
            if other != epoch and later.precedes(first_line):
                findings.add(_disordered(evidence, mark, later.mark))
                break
        if has_one_label:
            acked.setdefault(epoch, _Acked()).add(acked_line, mark)


def _check_offsets(evidence: EvidenceDatabase, findings: Findings) -> None:
    """Compare the first offsets with the order of the sequences, by device and epoch."""
    place: tuple[str, str, int] | None = None
    highest = -1
    for epoch, device, partition, offset in evidence.connection.execute(_OFFSETS):
        if (epoch, device, partition) != place:
            place, highest = (epoch, device, partition), -1
        if offset < highest:
            at = f"{device} in epoch {epoch}: partition {partition}, offset {offset} after {highest}"
            findings.add(Violation("disordered", at, 0, 0, 1))
        highest = max(highest, offset)


def _disordered(evidence: EvidenceDatabase, mark: int, later: int) -> Violation:
    return Violation("disordered", f"{readable(evidence.content(mark))} before a later one", 1, 1, 1, (mark, later))
