"""The oracle's judgement of a schedule: the sensors' ledger against table and topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from contract.event import DEVICE_RESERVED_PREFIX, TYPE_DEFAULT
from simulators.evidence.row import Row
from simulators.evidence.topic import row_of
from simulators.ledger import Line, Reported, read
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.findings import Scope
from simulators.oracle.judge import judge
from tests.schedules.cluster import Cluster
from tests.schedules.spark import Table, TableRow


def faults_of(ledger: Path, table: Table, cluster: Cluster, *, complete: bool, lanes: bool) -> list[str]:
    """Return what is wrong; a topic that has lost records is no evidence.

    With lanes the order of a device's events is that of each lane: each type is judged as a device of its own.
    """
    lines, rows, records = read(ledger), _rows(table.rows), map(_record_of, _places(cluster))
    if lanes:
        lines, rows, records = map(_reported_by_lane, lines), map(_row_by_lane, rows), map(_row_by_lane, records)
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(lines)
        evidence.add_rows(rows)
        if not cluster.has_lost:
            evidence.add_records(records)
        verdict = judge(evidence, Scope(complete=complete))
    return [f"{name}: {count}" for name, count in verdict.faults.items()] + list(map(str, verdict.violations))


def _reported_by_lane(line: Line) -> Line:
    if not isinstance(line, Reported):
        return line
    return replace(line, event=replace(line.event, device=_lane_of(line.event.device, line.event.type)))


def _row_by_lane(row: Row) -> Row:
    return row._replace(device=_lane_of(row.device, row.type))


def _lane_of(device: str, type_: str) -> str:
    is_divided = type_ != TYPE_DEFAULT and not device.startswith(DEVICE_RESERVED_PREFIX)
    return f"{device} {type_}" if is_divided else device


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
