"""The oracle: hold the ledger against the table, event by event.

It never looks at a fingerprint. An event with an id is found by device, type and id, one with a time by device, type
and time. An event with neither cannot be told from its twin, by nobody: there the number of rows that say the same must
be the number of events that said it. Between "sent" and "acked" both outcomes are right: once, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from contract.event import Event, Value
from simulators.ledger import Acked, LedgerError, Line, Sent, Told
from simulators.table import Row
from simulators.voice import Kind

EXAMPLES_MAX = 20

Key: TypeAlias = tuple[str, str, Kind, int | str]
"""Device, type, what the event is known by, and its id, its time, or the text of its data."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which ledger and table disagree."""

    what: str
    """`lost`, `doubled`, `invented` or `changed`."""
    key: Key
    sent: int
    acked: int
    rows: int

    def __str__(self) -> str:
        """Write it for people."""
        device, type_, kind, value = self.key
        return (
            f"{self.what}: {device} {type_} {kind.value}={value} "
            f"(events sent {self.sent}, acked {self.acked}, rows {self.rows})"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit found; the promise is kept where `kept`."""

    events: int
    acked: int
    rows: int
    equal_readings: int
    """Events whose type and data are those of an earlier event of the same sensor."""
    lost: int
    doubled: int
    invented: int
    changed: int
    violations: tuple[Violation, ...]
    """The first of each sort."""

    @property
    def kept(self) -> bool:
        """Whether table and truth agree."""
        return not (self.lost or self.doubled or self.invented or self.changed)


@dataclass(slots=True)
class _Truth:
    """What the ledger says of one key, and how many rows the table has for it."""

    data: str
    sent: int = 0
    acked: int = 0
    rows: int = 0


@dataclass(slots=True)
class _Findings:
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("lost", "doubled", "invented", "changed"), 0))
    examples: list[Violation] = field(default_factory=list)

    def add(self, what: str, number: int, key: Key, truth: _Truth) -> None:
        if number <= 0:
            return
        self.counts[what] += number
        if sum(example.what == what for example in self.examples) < EXAMPLES_MAX:
            self.examples.append(Violation(what, key, truth.sent, truth.acked, truth.rows))


def audit(ledger: Iterable[Line], table: Iterable[Row]) -> Verdict:
    """Count what was lost, doubled, invented or changed between ledger and table."""
    truths, events, equal_readings = _read_truths(ledger)
    findings = _Findings()
    rows = 0
    for row in table:
        rows += 1
        _count_row(truths, row, findings)
    for key, truth in truths.items():
        findings.add("lost", truth.acked - truth.rows, key, truth)
        findings.add("doubled", truth.rows - truth.sent, key, truth)
    return Verdict(
        events=events,
        acked=sum(truth.acked for truth in truths.values()),
        rows=rows,
        equal_readings=equal_readings,
        **findings.counts,
        violations=tuple(findings.examples),
    )


def canonical(data: Value) -> str:
    """Write data so that equal content is equal text: keys sorted, 21.0 as 21."""
    return json.dumps(_reduced(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _read_truths(ledger: Iterable[Line]) -> tuple[dict[Key, _Truth], int, int]:
    truths: dict[Key, _Truth] = {}
    keys: dict[int, Key] = {}
    sent: set[int] = set()
    readings: set[tuple[str, str, str]] = set()
    for line in ledger:
        if isinstance(line, Told):
            data = canonical(line.event.data)
            readings.add((line.event.device, line.event.type, data))
            keys[line.mark] = key = _key(line.event, data)
            if key in truths and key[2] is not Kind.NEITHER:
                raise LedgerError(f"two events are known by {key}: the sensor is wrong, not the path")
            truths.setdefault(key, _Truth(data))
        elif isinstance(line, Sent) and line.mark not in sent:
            sent.add(line.mark)
            truths[keys[line.mark]].sent += 1
        elif isinstance(line, Acked):
            truths[keys[line.mark]].acked += 1
    return truths, len(keys), len(keys) - len(readings)


def _count_row(truths: dict[Key, _Truth], row: Row, findings: _Findings) -> None:
    data = canonical(row.data)
    key = _key(row, data)
    truth = truths.get(key)
    if truth is None:
        findings.add("invented", 1, key, _Truth(data, rows=1))
        return
    truth.rows += 1
    if truth.data != data:
        findings.add("changed", 1, key, truth)


def _key(said: Event | Row, data: str) -> Key:
    if said.id is not None:
        # The table has every id as text.
        return said.device, said.type, Kind.ID, str(said.id)
    if said.time is not None:
        return said.device, said.type, Kind.TIME, said.time
    return said.device, said.type, Kind.NEITHER, data


def _reduced(value: Value) -> Value:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _reduced(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_reduced(entry) for entry in value]
    return value
