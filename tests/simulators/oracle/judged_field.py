"""A field whose events were all sent twice and acked once, and helpers that judge it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Acked, Ledger, Line, Reported, Sent
from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Scope, Verdict
from simulators.payloads import PayloadGenerator, device_profile

SENSORS = 12
EVENTS_EACH = 25
NOW = 1_763_706_000_000


def audit(
    ledger: Iterable[Line], table: Iterable[Row], topic: Iterable[Row] | None = None, scope: Scope | None = None
) -> Verdict:
    """Judge a table, and optionally the topic; ids become text in the table."""
    with EvidenceDatabase() as evidence:
        evidence.add_ledger(ledger)
        evidence.add_rows(map(_of_table, table))
        if topic is not None:
            evidence.add_records(topic)
        return judge(evidence, scope)


def _of_table(record: Row) -> Row:
    id_, boot = (None if value is None else str(value) for value in (record.id, record.boot))
    return record._replace(id=id_, boot=boot)


def _ledger() -> list[Line]:
    """Return the ledger of a field whose events were all sent twice and acked once."""
    lines: list[Line] = []
    mark = 0
    for index in range(SENSORS):
        generator = PayloadGenerator(device_profile(index), Random(index))
        for _ in range(EVENTS_EACH):
            mark += 1
            again = Sent(2, mark, again=True)
            lines += [Reported(0, mark, generator.next_event(NOW)), Sent(1, mark), again, Acked(3, mark)]
    return lines


def rows_of(lines: Iterable[Line]) -> list[Row]:
    return rows(*(line.event for line in lines if isinstance(line, Reported)))


def rows(*events: Event) -> list[Row]:
    """Return records of events, labelled consecutively by one gateway in one partition."""
    return [row_of(event, sequence) for sequence, event in enumerate(events, start=1)]


def row_of(event: Event, sequence: int = 1, epoch: str = "e", gateway: str = "gw1") -> Row:
    """Return the record of an event under a label, with a unique fingerprint."""
    label = (epoch, sequence, 0, sequence, f"{epoch} {sequence}", NOW)
    return Row(event.device, event.type, event.id, event.time, event.data, event.boot, *label, gateway)


def sent_and_acked(*events: Event) -> list[Line]:
    return [
        line
        for mark, event in enumerate(events, start=1)
        for line in (Reported(0, mark, event), Sent(0, mark), Acked(0, mark))
    ]


def write_ledger_of(
    file: Path, events: Iterable[Event], noted: Mapping[str, object], at: int = 0, *, ended: bool = True
) -> Path:
    """Write the ledger of a run whose events were all sent and acked once; return the file."""
    with Ledger(file, lambda: at) as written:
        written.begin(noted)
        for event in events:
            mark = written.reported(event)
            written.sent(mark)
            written.acked(mark)
        if ended:
            written.end()
    return file


LEDGER = _ledger()
TABLE = rows_of(LEDGER)
ALL = len(TABLE)
