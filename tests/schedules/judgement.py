"""The oracle's judgement of a schedule: the sensors' ledger against table and topic."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contract.event import DEVICE_RESERVED_PREFIX
from simulators.evidence.row import Row
from simulators.evidence.topic import row_of
from simulators.ledger import read
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.findings import Scope
from simulators.oracle.judge import judge
from tests.schedules.cluster import Cluster
from tests.schedules.spark import Table, TableRow


def faults_of(ledger: Path, table: Table, cluster: Cluster, *, complete: bool) -> list[str]:
    """Return what is wrong; a topic that has lost records is no evidence."""
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(read(ledger))
        evidence.add_rows(_rows(table.rows))
        if not cluster.has_lost:
            evidence.add_records(map(_record_of, _places(cluster)))
        verdict = judge(evidence, Scope(complete=complete))
    return [f"{name}: {count}" for name, count in verdict.faults.items()] + list(map(str, verdict.violations))


def _places(cluster: Cluster) -> Iterable[TableRow]:
    """Yield all records of the topic, those that retention has deleted, too."""
    for number, place in enumerate(cluster.partitions):
        for offset, record in enumerate(place.log):
            yield TableRow(number, offset, record)


def _rows(rows: Iterable[TableRow]) -> Iterable[Row]:
    """Yield the sensors' rows as the table has them, where ids are text."""
    for record in map(_record_of, rows):
        if not record.device.startswith(DEVICE_RESERVED_PREFIX):
            id_, boot = (None if value is None else str(value) for value in (record.id, record.boot))
            yield record._replace(id=id_, boot=boot)


def _record_of(place: TableRow) -> Row:
    return row_of(place.record.value, place.partition, place.offset, place.record.time_ms)
