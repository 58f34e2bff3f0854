"""Traces of single devices: the lines of the ledger, the records and the rows, in an order in which they happened."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, LedgerError, Line, Refused, Reported, Sent
from simulators.oracle.statement import digest, statement

DEVICES_MAX = 200
EVENTS_MAX = 40
"""Of each device, the first ones."""
STRANGE = 0
"""The position of a record or row that no sensor has sent."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a trace: `sent`, `acked`, `record` or `row` of the event at a position; `table` precedes all rows."""

    event: str
    position: int
    offset: int = 0
    """The place of the row's record among those of its device, from 0 on."""


Trace = Sequence[Step]


@dataclass(slots=True)
class Traces:
    """The traces of devices by name, and how many devices have none, by the reason."""

    by_device: dict[str, Trace] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Device:
    """What the ledger has of a device."""

    statements: dict[bytes, int] = field(default_factory=dict)
    """Positions by the digests of the events, which the device has sent in this order."""
    marks: dict[int, int] = field(default_factory=dict)
    """The same by their marks."""
    steps: list[tuple[int, Step]] = field(default_factory=list)
    """Each with its time, in milliseconds since 1970 UTC."""
    open: int = 0
    reason: str = ""
    """Why the model does not describe what it does."""


def collect(ledger: Iterable[Line], records: Iterable[Row] | None, rows: Iterable[Row] | None) -> Traces:
    """Return the traces of all devices that send one event at a time, with records or rows or both.

    Without records, each row stands for its own, and their times are unknown. Raise LedgerError where the ledger lacks
    an event that was sent.
    """
    devices = _devices(ledger)
    records_of, rows_of = _by_device(records or ()), _by_device(rows or ())
    traces = Traces()
    for name, device in devices.items():
        reason = device.reason or (_several_partitions(records_of[name], rows_of[name]))
        if reason:
            traces.left_out[reason] += 1
        elif len(traces.by_device) < DEVICES_MAX:
            seen = records_of[name] if records is not None else None
            traces.by_device[name] = tuple(_steps(device, seen, rows_of[name] if rows is not None else None))
        else:
            traces.left_out[f"only the first {DEVICES_MAX} devices are compared"] += 1
    return traces


def _devices(ledger: Iterable[Line]) -> Mapping[str, _Device]:
    devices: defaultdict[str, _Device] = defaultdict(_Device)
    names: dict[int, str] = {}
    for line in ledger:
        if isinstance(line, Reported):
            names[line.mark] = line.event.device
            _note_event(devices[line.event.device], line)
        elif isinstance(line, Sent | Acked | Refused | GivenUp):
            if line.mark not in names:
                raise LedgerError(f"the event {line.mark} was never reported: lines of the ledger are missing")
            _note_step(devices[names[line.mark]], line)
    return devices


def _note_event(device: _Device, line: Reported) -> None:
    encoded = digest(statement(line.event))
    if encoded in device.statements:
        device.reason = "two events are equal"
    device.statements[encoded] = device.marks[line.mark] = len(device.marks) + 1


def _note_step(device: _Device, line: Sent | Acked | Refused | GivenUp) -> None:
    position = device.marks[line.mark]
    if isinstance(line, Refused | GivenUp):
        device.reason = device.reason or "an event was refused or given up"
    elif isinstance(line, Sent):
        if device.open not in (0, position):
            device.reason = device.reason or "sends several events at once"
        if line.time is not None:
            device.reason = device.reason or "sends an event with another time"
        device.open = position
        device.steps.append((line.at, Step("sent", position)))
    else:
        device.open = 0
        device.steps.append((line.at, Step("acked", position)))


def _by_device(found: Iterable[Row]) -> defaultdict[str, list[Row]]:
    by_device: defaultdict[str, list[Row]] = defaultdict(list)
    for row in found:
        by_device[row.device].append(row)
    return by_device


def _several_partitions(*found: Sequence[Row]) -> str:
    rows = [row for part in found for row in part]
    if len({row.gateway for row in rows}) > 1:
        return "several gateways have its events"
    return "its records are in several partitions" if len({row.partition for row in rows}) > 1 else ""


def _steps(device: _Device, records: Sequence[Row] | None, rows: Sequence[Row] | None) -> Iterator[Step]:
    """Yield the steps of the first events: those of the sensor and the records by time, then the rows by offset."""

    def position(row: Row) -> int:
        return device.statements.get(digest(statement(row)), STRANGE)

    def ordered(found: Sequence[Row] | None) -> list[Row]:
        return sorted((row for row in found or () if position(row) <= EVENTS_MAX), key=lambda row: row.offset or 0)

    written = ordered(rows if records is None else records)
    places = {row.offset: place for place, row in enumerate(written)}
    steps = [(at, step) for at, step in device.steps if step.position <= EVENTS_MAX]
    last = max((at for at, _ in steps), default=0)
    latest = 0
    for row in written:
        # Offsets decide the order of records; of equal times the sensor's comes first.
        latest = max(latest, last if records is None or row.at is None else row.at)
        steps.append((latest, Step("record", position(row))))
    steps.sort(key=lambda timed: timed[0])  # stable
    yield from (step for _, step in steps)
    if rows is not None:
        yield Step("table", 0)
        yield from (Step("row", position(row), places.get(row.offset, len(places))) for row in ordered(rows))


def positions(trace: Trace) -> int:
    """Return how many events a trace has."""
    return max((step.position for step in trace), default=0)


def repeats(trace: Trace) -> int:
    """Return how many records of a trace repeat an earlier one."""
    counts = Counter(step.position for step in trace if step.event == "record")
    return sum(count - 1 for count in counts.values())
