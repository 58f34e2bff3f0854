"""A field in which everything was sent twice and acked once, and what the oracle says of it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Acked, Line, Sent, Told
from simulators.oracle.casebook import Casebook
from simulators.oracle.judge import judge
from simulators.oracle.verdict import Verdict
from simulators.voice import Voice, nature

SENSORS = 12
EVENTS_EACH = 25
NOW = 1_763_706_000_000


def audit(ledger: Iterable[Line], table: Iterable[Row], gateways: int = 1) -> Verdict:
    with Casebook() as casebook:
        casebook.add_ledger(ledger)
        casebook.add_rows(table)
        return judge(casebook, gateways=gateways)


def _truth() -> list[Line]:
    """Play a field in which everything was sent twice and acked once."""
    lines: list[Line] = []
    mark = 0
    for index in range(SENSORS):
        voice = Voice(nature(index), Random(index))
        for _ in range(EVENTS_EACH):
            mark += 1
            again = Sent(2, mark, again=True)
            lines += [Told(0, mark, voice.next_event(NOW)), Sent(1, mark), again, Acked(3, mark)]
    return lines


def rows_of(lines: Iterable[Line]) -> list[Row]:
    return [row_of(line.event) for line in lines if isinstance(line, Told)]


def row_of(event: Event) -> Row:
    return Row(event.device, event.type, None if event.id is None else str(event.id), event.time, event.data)


def sent_and_acked(*events: Event) -> list[Line]:
    return [
        line
        for mark, event in enumerate(events, start=1)
        for line in (Told(0, mark, event), Sent(0, mark), Acked(0, mark))
    ]


TRUTH = _truth()
TABLE = rows_of(TRUTH)
ALL = len(TABLE)
